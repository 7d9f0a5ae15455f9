#include "replica/models/layers/resnet.h"

/// torchvision's resnext50_32x4d: 25,028,904 parameters for images of three channels and 1000 classes.
namespace poprun::models::resnext50_32x4d {
namespace {

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  return layers::resnet(builder, inputs, {.blocks = {3, 4, 6, 3}, .groups = 32, .width_per_group = 4});
}

}  // namespace

std::vector<Model> models() {
  return {{.name = "resnext50-32x4d",
           .description = "resnet50 with 32 groups of 4 channels in its 3x3 convolutions",
           .sizes = {{"classes", kOfData}},
           .sample = layers::imagenet_sample(),
           .has_batch_norm = true,
           .build = build}};
}

}  // namespace poprun::models::resnext50_32x4d
