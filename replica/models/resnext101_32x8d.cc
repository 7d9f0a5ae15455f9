#include "replica/models/layers/resnet.h"

/// torchvision's resnext101_32x8d: 88,791,336 parameters for images of three channels and 1000 classes.
namespace poprun::models::resnext101_32x8d {
namespace {

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  return layers::resnet(builder, inputs, {.blocks = {3, 4, 23, 3}, .groups = 32, .width_per_group = 8});
}

}  // namespace

std::vector<Model> models() {
  return {{.name = "resnext101-32x8d",
           .description = "resnet101 with 32 groups of 8 channels in its 3x3 convolutions",
           .sizes = {{"classes", kOfData}},
           .sample = layers::imagenet_sample(),
           .has_batch_norm = true,
           .build = build}};
}

}  // namespace poprun::models::resnext101_32x8d
