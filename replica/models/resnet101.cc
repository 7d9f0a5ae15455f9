#include "replica/models/layers/resnet.h"

/// torchvision's resnet101: 44,549,160 parameters for images of three channels and 1000 classes.
namespace poprun::models::resnet101 {
namespace {

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  return layers::resnet(builder, inputs, {.blocks = {3, 4, 23, 3}});
}

}  // namespace

std::vector<Model> models() {
  return {{.name = "resnet101",
           .description = "101 layers in bottleneck blocks of batch-normalised convolutions, stride in the 3x3",
           .sizes = {{"classes", kOfData}},
           .sample = layers::imagenet_sample(),
           .has_batch_norm = true,
           .build = build}};
}

}  // namespace poprun::models::resnet101
