#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "replica/models/layers/layers.h"
#include "replica/models/layers/model.h"
#include "replica/models/layers/resnet.h"
#include "replica/models/layers/transformer.h"

/// EfficientNets (Tan and Le, "EfficientNet: rethinking model scaling for convolutional neural networks", ICML 2019)
/// with torchvision's architecture, parameter names and shapes. Images can have any size and number of channels. With
/// three-channel images and 1000 classes, they have this many parameters:
///
///   efficientnet-b0  5,288,548    efficientnet-b3  12,233,232
///   efficientnet-b1  7,794,184    efficientnet-b4  19,341,616
///   efficientnet-b2  9,109,994
///
/// The models differ from torchvision's in three ways. No block is ever skipped at random (stochastic depth). The
/// rate of the only dropout, before the classifier, is model.dropout. The classifier and the biases of
/// squeeze-and-excitation start from the distributions of PyTorch's layers.
namespace poprun::models::efficientnet {
namespace {

using layers::Norm;

/// Factors by which a network is wider and deeper than efficientnet-b0.
struct Scale {
  double width = 1;
  double depth = 1;
};

/// Blocks of equal width; only the first of them has the stride. The sizes are those of efficientnet-b0.
struct Stage {
  std::int64_t expansion;  ///< Channels of the depthwise convolution, per input channel.
  std::int64_t kernel;
  std::int64_t stride;
  std::int64_t channels;
  std::int64_t blocks;
};

// Table 1 of the paper, stages 2 to 8.
constexpr std::array kStages = {Stage{1, 3, 1, 16, 1}, Stage{6, 3, 2, 24, 2},  Stage{6, 5, 2, 40, 2},
                                Stage{6, 3, 2, 80, 3}, Stage{6, 5, 1, 112, 3}, Stage{6, 5, 2, 192, 4},
                                Stage{6, 3, 1, 320, 1}};
constexpr std::int64_t kStemChannels = 32;
constexpr std::int64_t kHeadExpansion = 4;  ///< Channels that are classified, per channel of the last stage.

/// Returns the multiple of 8 nearest to channels * width or, if it is less than 90 % of that product, the next larger
/// multiple, like torchvision's _make_divisible.
std::int64_t scaled_width(std::int64_t channels, double width) {
  const double exact = static_cast<double>(channels) * width;
  const std::int64_t nearest = std::max<std::int64_t>(8, static_cast<std::int64_t>(exact + 4) / 8 * 8);
  return static_cast<double>(nearest) < 0.9 * exact ? nearest + 8 : nearest;
}

std::int64_t scaled_depth(std::int64_t blocks, double depth) {
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(blocks) * depth));
}

/// Adds torchvision's `Conv2dNormActivation`, NAME.0 and NAME.1, without the activation.
TensorId normalised(Builder& builder, const std::string& name, TensorId x, const layers::Convolution& c,
                    const Norm& norm) {
  return layers::normalised(builder, name + ".0", name + ".1", x, c, norm);
}

/// Adds torchvision's `SqueezeExcitation`: multiplies each channel by a gate in (0, 1), computed from the averages of
/// all channels by two 1x1 convolutions, the first of them to `squeezed` channels.
TensorId squeeze_excitation(Builder& builder, const std::string& name, TensorId x, std::int64_t squeezed) {
  if (!builder.status()) {
    return x;
  }
  const std::int64_t channels = builder.type(x).shape[1];
  TensorId gate = layers::global_average(builder, name + ".avgpool", x);
  gate = layers::conv2d(builder, name + ".fc1", gate, {.channels = squeezed, .kaiming_normal = true});
  gate = layers::silu(builder, name + ".activation", gate);
  gate = layers::conv2d(builder, name + ".fc2", gate, {.channels = channels, .kaiming_normal = true});
  gate = builder.add_one("sigmoid", {gate}, {}, name + ".scale");
  return builder.add_one("mul", {x, gate}, {}, name + ".scaled");
}

/// Adds torchvision's `MBConv`: a 1x1 convolution that expands x (unless the expansion is 1), a depthwise convolution,
/// squeeze-and-excitation, and a 1x1 convolution to `stage.channels`. x is added to the result if their types agree.
TensorId block(Builder& builder, const std::string& name, TensorId x, const Stage& stage, const Norm& norm) {
  if (!builder.status()) {
    return x;
  }
  const std::int64_t in = builder.type(x).shape[1];
  const std::int64_t wide = in * stage.expansion;
  std::int64_t next = 0;
  const auto part = [&] { return fmt::format("{}.block.{}", name, next++); };
  TensorId y = x;
  if (stage.expansion > 1) {
    const std::string expand = part();
    y = layers::silu(builder, expand + ".2", normalised(builder, expand, y, {.channels = wide}, norm));
  }
  const std::string depthwise = part();
  y = normalised(
      builder, depthwise, y,
      {.channels = wide, .kernel = stage.kernel, .stride = stage.stride, .pad = stage.kernel / 2, .groups = wide},
      norm);
  y = layers::silu(builder, depthwise + ".2", y);
  y = squeeze_excitation(builder, part(), y, std::max<std::int64_t>(1, in / 4));
  y = normalised(builder, part(), y, {.channels = stage.channels}, norm);
  const bool residual = stage.stride == 1 && in == stage.channels;
  return residual ? layers::add(builder, name + ".add", y, x) : y;
}

ModelOutputs build(Builder& builder, const ModelInputs& inputs, const Scale& scale) {
  const Norm norm{inputs.normalisation, inputs.training};
  builder.layer("features.0");
  TensorId x = layers::images(builder, inputs, {});
  x = normalised(builder, "features.0", x,
                 {.channels = scaled_width(kStemChannels, scale.width), .kernel = 3, .stride = 2, .pad = 1}, norm);
  x = layers::silu(builder, "features.0.2", x);
  std::size_t feature = 1;
  Stage stage = {};
  for (const Stage& unscaled : kStages) {
    stage = unscaled;
    stage.channels = scaled_width(unscaled.channels, scale.width);
    const std::int64_t blocks = scaled_depth(unscaled.blocks, scale.depth);
    for (std::int64_t i = 0; i < blocks; ++i) {
      const std::string name = fmt::format("features.{}.{}", feature, i);
      builder.layer(name);
      x = block(builder, name, x, stage, norm);
      stage.stride = 1;
    }
    ++feature;
  }
  const std::string head = fmt::format("features.{}", feature);
  builder.layer(head);
  x = normalised(builder, head, x, {.channels = kHeadExpansion * stage.channels}, norm);
  x = layers::silu(builder, head + ".2", x);
  builder.layer("classifier");
  x = layers::flatten(builder, "flatten", layers::global_average(builder, "avgpool", x));
  x = layers::dropout(builder, "classifier.0", x, inputs.training ? inputs.dropout : 0);
  return layers::classify(builder, "classifier.1", x, inputs);
}

template <const Scale& scale>
Model model(std::string name, std::string description) {
  return {.name = std::move(name),
          .description = std::move(description),
          .sizes = {{"classes", kOfData}},
          .sample = layers::imagenet_sample(),
          .has_dropout = true,
          .has_batch_norm = true,
          .build = [](Builder& builder, const ModelInputs& inputs) { return build(builder, inputs, scale); }};
}

constexpr Scale kB0{.width = 1.0, .depth = 1.0};
constexpr Scale kB1{.width = 1.0, .depth = 1.1};
constexpr Scale kB2{.width = 1.1, .depth = 1.2};
constexpr Scale kB3{.width = 1.2, .depth = 1.4};
constexpr Scale kB4{.width = 1.4, .depth = 1.8};

}  // namespace

std::vector<Model> models() {
  return {model<kB0>("efficientnet-b0",
                     "16 blocks of 1x1 and depthwise convolutions with squeeze-and-excitation, batch-normalised"),
          model<kB1>("efficientnet-b1", "efficientnet-b0 with 23 blocks"),
          model<kB2>("efficientnet-b2", "efficientnet-b0 with 23 blocks and 1.1 times the channels"),
          model<kB3>("efficientnet-b3", "efficientnet-b0 with 26 blocks and 1.2 times the channels"),
          model<kB4>("efficientnet-b4", "efficientnet-b0 with 32 blocks and 1.4 times the channels")};
}

}  // namespace poprun::models::efficientnet
