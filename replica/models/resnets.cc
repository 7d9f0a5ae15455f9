#include "replica/models/layers/resnet.h"

/// torchvision's ResNets and ResNeXts. With three-channel images and 1000 classes, they have this many parameters:
///
///   resnet18   11,689,512    resnext50-32x4d    25,028,904
///   resnet50   25,557,032    resnext101-32x8d   88,791,336
///   resnet101  44,549,160    resnext101-32x4d    44,177,704
namespace poprun::models::resnets {
namespace {

template <const layers::ResNet& network>
Model model(std::string name, std::string description) {
  return {
      .name = std::move(name),
      .description = std::move(description),
      .sizes = {{"classes", kOfData}},
      .sample = layers::imagenet_sample(),
      .has_batch_norm = true,
      .build = [](Builder& builder, const ModelInputs& inputs) { return layers::resnet(builder, inputs, network); }};
}

constexpr layers::ResNet kResNet18{.blocks = {2, 2, 2, 2}, .bottlenecks = false};
constexpr layers::ResNet kResNet50{.blocks = {3, 4, 6, 3}};
constexpr layers::ResNet kResNet101{.blocks = {3, 4, 23, 3}};
constexpr layers::ResNet kResNeXt50{.blocks = {3, 4, 6, 3}, .groups = 32, .width_per_group = 4};
constexpr layers::ResNet kResNeXt101x4{.blocks = {3, 4, 23, 3}, .groups = 32, .width_per_group = 4};
constexpr layers::ResNet kResNeXt101{.blocks = {3, 4, 23, 3}, .groups = 32, .width_per_group = 8};

}  // namespace

std::vector<Model> models() {
  return {
      model<kResNet18>("resnet18", "18 layers in basic blocks of two batch-normalised 3x3 convolutions"),
      model<kResNet50>(
          "resnet50",
          "50 layers in bottleneck blocks of batch-normalised convolutions, with the stride in the 3x3 convolution"),
      model<kResNet101>(
          "resnet101",
          "101 layers in bottleneck blocks of batch-normalised convolutions, with the stride in the 3x3 convolution"),
      model<kResNeXt50>("resnext50-32x4d", "resnet50 with 32 groups of 4 channels in its 3x3 convolutions"),
      model<kResNeXt101x4>("resnext101-32x4d", "resnet101 with 32 groups of 4 channels in its 3x3 convolutions"),
      model<kResNeXt101>("resnext101-32x8d", "resnet101 with 32 groups of 8 channels in its 3x3 convolutions")};
}

}  // namespace poprun::models::resnets
