#include <fmt/format.h>

#include "replica/models/layers/layers.h"
#include "replica/models/model.h"

/// Dense layers on flattened images: by default 784-1024-1024-10 on 28 x 28 images of ten classes,
/// 1,863,690 parameters. Sizes: layers (hidden ones), hidden.
namespace poprun {
namespace {

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  const TensorId images = inputs.find(builder, "images");
  const TensorId labels = inputs.find(builder, "labels");

  const std::int64_t hidden_layers = inputs.size("layers");
  const std::int64_t hidden = inputs.size("hidden");

  TensorId x = layers::normalize(builder, images, inputs.mean, inputs.deviation);
  x = layers::flatten(builder, "features", x);
  for (std::int64_t layer = 1; layer <= hidden_layers; ++layer) {
    x = layers::linear(builder, fmt::format("fc{}", layer), x, hidden);
    x = layers::relu(builder, fmt::format("relu{}", layer), x);
  }
  x = layers::linear(builder, fmt::format("fc{}", hidden_layers + 1), x, inputs.classes);
  const auto outputs =
      builder.add("softmax_cross_entropy", {x, labels}, {}, {"loss", "correct", "count"});
  return {.loss = outputs[0], .correct = outputs[1], .count = outputs[2], .prediction = x};
}

}  // namespace

std::vector<Model> mlp_models() {
  return {{.name = "mlp",
           .description = "dense layers with relu: 784-1024-1024-10 on Fashion-MNIST",
           .sizes = {{"hidden", 1024}, {"layers", 2}},
           .sample = {.tensors = {{"images", DataType::kU8, {1, 28, 28}},
                                  {"labels", DataType::kI32, {}}},
                      .classes = 10},
           .build = build}};
}

}  // namespace poprun
