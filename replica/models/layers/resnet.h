#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "replica/models/layers/layers.h"
#include "replica/models/layers/model.h"

namespace poprun::layers {

/// Normalisation of the blocks. Its parameters are named as in batch normalisation, regardless of the kind.
struct Norm {
  Normalisation kind = {};
  bool training = true;  ///< Whether batch normalisation uses the batch's own statistics.
};

/// Adds the normalisation called `name`. Group normalisation has 32 groups or, if 32 does not divide the channels,
/// their greatest common divisor.
TensorId normalise(Builder& builder, const std::string& name, TensorId x, const Norm& norm);

/// Configuration of one network of the family.
struct ResNet {
  std::array<std::int64_t, 4> blocks;  ///< Blocks in each of the four stages.
  bool bottlenecks = true;             ///< If false, the blocks are basic blocks, which ignore the next two fields.
  std::int64_t groups = 1;             ///< Groups of the 3x3 convolutions; ResNeXts have more than one.
  std::int64_t width_per_group = 64;   ///< Channels of each group in the first stage.
};

/// Returns the sample data of ImageNet: images of 224 x 224 pixels and three channels, and 1000 classes.
Sample imagenet_sample();

/// Adds a convolution without bias, called `convolution`, with initial weights as in kaiming_normal_, followed by
/// normalisation, called `name`.
TensorId normalised(Builder& builder, const std::string& convolution, const std::string& name, TensorId x,
                    Convolution c, const Norm& norm);

/// Adds torchvision's `Bottleneck`: a 1x1 convolution, a 3x3 convolution with the stride ("v1.5") and the groups, and a
/// 1x1 convolution to `channels`, each followed by normalisation. The result is added to x, or to a 1x1 convolution of
/// x if the sizes differ. The parameters are called NAME.conv1.weight ... NAME.downsample.1.bias.
TensorId bottleneck(Builder& builder, const std::string& name, TensorId x, std::int64_t width, std::int64_t channels,
                    std::int64_t stride, std::int64_t groups, const Norm& norm);

/// Adds torchvision's `BasicBlock`: a 3x3 convolution with the stride and another 3x3 convolution, both to `channels`
/// and followed by normalisation. The result is added to x as in `bottleneck`.
TensorId basic_block(Builder& builder, const std::string& name, TensorId x, std::int64_t channels, std::int64_t stride,
                     const Norm& norm);

/// Builds a residual network with torchvision's architecture, parameter names and initialisation (He, Zhang, Ren, Sun,
/// "Deep residual learning for image recognition", CVPR 2016, and Xie et al., "Aggregated residual transformations for
/// deep neural networks", CVPR 2017). Images can have any size and number of channels. With 28 x 28 pixels, the last
/// stage sees one pixel.
ModelOutputs resnet(Builder& builder, const ModelInputs& inputs, const ResNet& network);

}  // namespace poprun::layers
