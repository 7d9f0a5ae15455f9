#pragma once

#include <array>
#include <cstdint>

#include "replica/models/model.h"

namespace poprun::layers {

/// What tells one network of the family from another.
struct ResNet {
  std::array<std::int64_t, 4> blocks;  ///< Of each of the four stages.
  bool bottlenecks = true;            ///< False: basic blocks, which have neither of the two below.
  std::int64_t groups = 1;            ///< Of the 3x3 convolutions; more than one is a ResNeXt.
  std::int64_t width_per_group = 64;  ///< Their channels a group in the first stage.
};

/// 224 x 224 images of three channels and 1000 classes.
Sample imagenet_sample();

/// A bottleneck block, as torchvision's `Bottleneck`: 1x1, 3x3 with the stride ("v1.5") and the
/// groups, 1x1 to `channels`, each batch-normalised; added to x, or to a 1x1 convolution of x where
/// sizes differ. Parameters are called NAME.conv1.weight ... NAME.downsample.1.bias.
TensorId bottleneck(Builder& builder, const std::string& name, TensorId x, std::int64_t width,
                    std::int64_t channels, std::int64_t stride, std::int64_t groups, bool training);

/// A basic block, as torchvision's `BasicBlock`: 3x3 with the stride, 3x3, both to `channels`, each
/// batch-normalised; added to x as in a bottleneck.
TensorId basic_block(Builder& builder, const std::string& name, TensorId x, std::int64_t channels,
                     std::int64_t stride, bool training);

/// He, Zhang, Ren, Sun, "Deep residual learning for image recognition", CVPR 2016, and Xie et al.,
/// "Aggregated residual transformations for deep neural networks", CVPR 2017, in torchvision's
/// form: its architecture, parameter names and initialisation. Images of any size and number of
/// channels; of 28 x 28, the last stage sees one pixel.
ModelOutputs resnet(Builder& builder, const ModelInputs& inputs, const ResNet& network);

}  // namespace poprun::layers
