#include "replica/models/layers/resnet.h"

/// torchvision's resnet18: 11,689,512 parameters for images of three channels and 1000 classes.
namespace poprun::models::resnet18 {
namespace {

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  return layers::resnet(builder, inputs, {.blocks = {2, 2, 2, 2}, .bottlenecks = false});
}

}  // namespace

std::vector<Model> models() {
  return {{.name = "resnet18",
           .description = "18 layers in basic blocks of two batch-normalised 3x3 convolutions",
           .sizes = {{"classes", kOfData}},
           .sample = layers::imagenet_sample(),
           .has_batch_norm = true,
           .build = build}};
}

}  // namespace poprun::models::resnet18
