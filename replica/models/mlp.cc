#include <fmt/format.h>

#include "replica/models/layers/layers.h"
#include "replica/models/model.h"

/// Dense layers on flattened images: 784-1024-1024-10 on 28 x 28 images of ten classes, 1,863,690
/// parameters.
namespace poprun {
namespace {

constexpr int kLayers = 2;  ///< Hidden ones.
constexpr std::int64_t kHidden = 1024;

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  const TensorId images = inputs.find(builder, "images");
  const TensorId labels = inputs.find(builder, "labels");

  TensorId x = layers::normalize(builder, images, inputs.mean, inputs.deviation);
  x = layers::flatten(builder, "features", x);
  for (int layer = 1; layer <= kLayers; ++layer) {
    x = layers::linear(builder, fmt::format("fc{}", layer), x, kHidden);
    x = layers::relu(builder, fmt::format("relu{}", layer), x);
  }
  x = layers::linear(builder, fmt::format("fc{}", kLayers + 1), x, inputs.classes);
  const auto outputs =
      builder.add("softmax_cross_entropy", {x, labels}, {}, {"loss", "correct", "count"});
  return {.loss = outputs[0], .correct = outputs[1], .count = outputs[2]};
}

}  // namespace

Model mlp_model() {
  return {.name = "mlp",
          .description = "dense layers with relu: 784-1024-1024-10 on Fashion-MNIST",
          .build = build};
}

}  // namespace poprun
