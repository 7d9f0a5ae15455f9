#include <fmt/format.h>

#include "replica/models/layers/layers.h"
#include "replica/models/layers/model.h"

/// Dense layers on flattened images. By default, the layers are 784-1024-1024-10 for 28 x 28 images and ten classes,
/// with 1,863,690 parameters. The sizes are `layers` (the number of hidden layers), `hidden` and `classes`.
namespace poprun::models::mlp {
namespace {

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  const std::int64_t hidden_layers = inputs.size("layers");
  const std::int64_t hidden = inputs.size("hidden");
  builder.layer("fc1");
  TensorId x = layers::images(builder, inputs, {.planes = false});
  x = layers::flatten(builder, "features", x);
  for (std::int64_t layer = 1; layer <= hidden_layers; ++layer) {
    const std::string name = fmt::format("fc{}", layer);
    builder.layer(name);
    x = layers::linear(builder, name, x, hidden);
    x = layers::relu(builder, fmt::format("relu{}", layer), x);
  }
  const std::string classifier = fmt::format("fc{}", hidden_layers + 1);
  builder.layer(classifier);
  return layers::classify(builder, classifier, x, inputs);
}

}  // namespace

std::vector<Model> models() {
  return {
      {.name = "mlp",
       .description = "dense layers with relu: 784-1024-1024-10 on Fashion-MNIST",
       .sizes = {{"classes", kOfData}, {"hidden", 1024}, {"layers", 2}},
       .sample = {.tensors = {{"images", DataType::kU8, {1, 28, 28}}, {"labels", DataType::kI32, {}}}, .classes = 10},
       .build = build}};
}

}  // namespace poprun::models::mlp
