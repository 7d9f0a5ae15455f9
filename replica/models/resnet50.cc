#include "replica/models/layers/resnet.h"

/// torchvision's resnet50: 25,557,032 parameters for images of three channels and 1000 classes.
namespace poprun::models::resnet50 {
namespace {

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  return layers::resnet(builder, inputs, {.blocks = {3, 4, 6, 3}});
}

}  // namespace

std::vector<Model> models() {
  return {{.name = "resnet50",
           .description = "50 layers in bottleneck blocks of batch-normalised convolutions, stride in the 3x3",
           .sizes = {{"classes", kOfData}},
           .sample = layers::imagenet_sample(),
           .has_batch_norm = true,
           .build = build}};
}

}  // namespace poprun::models::resnet50
