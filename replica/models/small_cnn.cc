#include "replica/models/layers/layers.h"
#include "replica/models/layers/model.h"

/// The model of the default job: two convolutions and two dense layers. It has 421,642 parameters for 28 x 28 x 1
/// images and ten classes.
namespace poprun::models::small_cnn {
namespace {

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  builder.layer("conv1");
  TensorId x = layers::images(builder, inputs, {.least_size = 4});
  x = layers::conv2d(builder, "conv1", x, {.channels = 32, .kernel = 3, .pad = 1});
  x = layers::relu(builder, "relu1", x);
  x = layers::maxpool2d(builder, "pool1", x, 2);
  builder.layer("conv2");
  x = layers::conv2d(builder, "conv2", x, {.channels = 64, .kernel = 3, .pad = 1});
  x = layers::relu(builder, "relu2", x);
  x = layers::maxpool2d(builder, "pool2", x, 2);
  builder.layer("fc1");
  x = layers::flatten(builder, "features", x);
  x = layers::linear(builder, "fc1", x, 128);
  x = layers::relu(builder, "relu3", x);
  builder.layer("fc2");
  return layers::classify(builder, "fc2", x, inputs);
}

}  // namespace

std::vector<Model> models() {
  return {
      {.name = "small-cnn",
       .description = "two 3x3 convolutions (32, 64) with pooling, dense 128, classifier",
       .sizes = {{"classes", kOfData}},
       .sample = {.tensors = {{"images", DataType::kU8, {1, 28, 28}}, {"labels", DataType::kI32, {}}}, .classes = 10},
       .build = build}};
}

}  // namespace poprun::models::small_cnn
