#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "replica/models/layers/model.h"

namespace poprun::layers {

/// How blocks are normalised. Parameters are named as in batch normalisation.
struct Norm {
  Normalisation kind = {};
  bool training = true;  ///< Batch normalisation uses the batch's own statistics.
};

/// The parameters of one network of the family.
struct ResNet {
  std::array<std::int64_t, 4> blocks;  ///< Blocks in each of the four stages.
  bool bottlenecks = true;             ///< False: basic blocks, which ignore the next two fields.
  std::int64_t groups = 1;             ///< Groups of the 3x3 convolutions; ResNeXt if more than one.
  std::int64_t width_per_group = 64;   ///< Channels of each group in the first stage.
};

/// Images of 224 x 224 pixels and three channels, 1000 classes.
Sample imagenet_sample();

/// torchvision's `Bottleneck`: 1x1, 3x3 with the stride ("v1.5") and the groups, 1x1 to `channels`, normalised; added
/// to x, or to a 1x1 convolution of it if sizes differ. Parameters: NAME.conv1.weight ... NAME.downsample.1.bias.
TensorId bottleneck(Builder& builder, const std::string& name, TensorId x, std::int64_t width, std::int64_t channels,
                    std::int64_t stride, std::int64_t groups, const Norm& norm);

/// torchvision's `BasicBlock`: 3x3 with the stride, 3x3, both to `channels` and normalised; added to x as above.
TensorId basic_block(Builder& builder, const std::string& name, TensorId x, std::int64_t channels, std::int64_t stride,
                     const Norm& norm);

/// He, Zhang, Ren, Sun, "Deep residual learning for image recognition", CVPR 2016, and Xie et al., "Aggregated residual
/// transformations for deep neural networks", CVPR 2017, with torchvision's architecture, parameter names and
/// initialisation. Images may have any size and number of channels; of 28 x 28, the last stage sees one pixel.
ModelOutputs resnet(Builder& builder, const ModelInputs& inputs, const ResNet& network);

}  // namespace poprun::layers
