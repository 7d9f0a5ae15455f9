#include <fmt/format.h>

#include "replica/models/layers/layers.h"
#include "replica/models/layers/model.h"
#include "replica/models/layers/resnet.h"

/// U-Net (Ronneberger, Fischer and Brox, "U-Net: convolutional networks for biomedical image segmentation", MICCAI
/// 2015) with padded convolutions and batch normalisation: the architecture and parameter names of
/// milesial/Pytorch-UNet with bilinear=False. It has 31,037,698 parameters for images of three channels and two
/// classes. The sizes are `hidden`, the channels of the first level, `layers`, the number of times that the resolution
/// is halved, and `classes`.
///
///   inc -> down1 -> ... -> down4 -> up1 -> ... -> up4 -> outc
///           each up joins what the down before the same resolution made: [skipped, upsampled]
///
/// The loss is the cross-entropy of every pixel, with "labels" i32[N,H,W]; pixels with a negative label do not count.
namespace poprun::models::unet {
namespace {

using layers::Norm;

/// Two 3x3 convolutions to `channels`, each followed by normalisation and relu: NAME.double_conv.0 to .5.
TensorId double_conv(Builder& builder, const std::string& name, TensorId x, std::int64_t channels, const Norm& norm) {
  for (const int first : {0, 3}) {
    const auto part = [&](int k) { return fmt::format("{}.double_conv.{}", name, first + k); };
    x = layers::conv2d(builder, part(0), x, {.channels = channels, .kernel = 3, .pad = 1, .bias = false});
    x = layers::relu(builder, part(2), layers::normalise(builder, part(1), x, norm));
  }
  return x;
}

/// Adds a 2x2 transposed convolution with stride 2, which halves the channels of x and joins `skipped` to it, and a
/// double convolution.
TensorId up(Builder& builder, const std::string& name, TensorId x, TensorId skipped, const Norm& norm) {
  if (!builder.status()) {
    return x;
  }
  const Shape shape = builder.type(x).shape;
  const TensorId wider =
      layers::conv2d_transpose(builder, name + ".up", x, {.channels = shape[1] / 2, .kernel = 2, .stride = 2});
  const TensorId joined = builder.add_one("concat", {skipped, wider}, {{"axis", std::int64_t{1}}}, name + ".joined");
  return double_conv(builder, name + ".conv", joined, shape[1] / 2, norm);
}

/// Returns the normalised images. Makes the builder refuse (kUsage) images that cannot be halved `levels` times.
TensorId images(Builder& builder, const ModelInputs& inputs, std::int64_t levels) {
  const TensorId x = layers::images(builder, inputs, {});
  if (!builder.status()) {
    return x;
  }
  const Shape& s = builder.type(x).shape;
  const std::int64_t step = std::int64_t{1} << levels;
  if (s[2] % step != 0 || s[3] % step != 0) {
    builder.refuse({ErrorCode::kUsage, fmt::format("data.source: the model halves the resolution {} times, so height "
                                                   "and width must be multiples of {}, but the images are {} x {}",
                                                   levels, step, s[2], s[3])});
  }
  return x;
}

/// Adds the 1x1 convolution to the classes and, if the model is scored, the loss of every pixel.
ModelOutputs classify_pixels(Builder& builder, const std::string& name, TensorId x, const ModelInputs& inputs) {
  const bool scored = inputs.scored();
  const TensorId labels = scored ? inputs.find(builder, "labels") : x;
  if (!builder.status()) {
    return {};
  }
  const Shape s = builder.type(x).shape;
  const TensorType needed{DataType::kI32, {s[0], s[2], s[3]}, Layout::kRowMajor};
  if (scored && builder.type(labels) != needed) {
    builder.refuse({ErrorCode::kUsage, fmt::format("data.source: the model needs labels of type {}, one per pixel, but "
                                                   "the dataset has {}",
                                                   to_text(needed), to_text(builder.type(labels)))});
  }
  const std::int64_t classes = layers::classes_of(builder, inputs);
  const TensorId logits = layers::conv2d(builder, name, x, {.channels = classes});
  if (!scored || !builder.status()) {
    return {.prediction = logits, .scored = false};
  }
  const TensorId planes = layers::reshape(builder, name + ".planes", logits, {s[0], classes, s[2], s[3]});
  const TensorId pixels = builder.add_one("transpose", {planes}, {{"perm", Shape{0, 2, 3, 1}}}, name + ".pixels");
  ModelOutputs outputs = layers::score(builder, pixels, inputs, "loss");
  outputs.prediction = logits;
  return outputs;
}

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  const Norm norm{inputs.normalisation, inputs.training};
  const std::int64_t levels = inputs.size("layers");
  const std::int64_t channels = inputs.size("hidden");
  if (levels > 8) {
    builder.refuse({ErrorCode::kUsage, fmt::format("model.layers = {}: this model halves the resolution at most 8 "
                                                   "times",
                                                   levels)});
    return {};
  }
  builder.layer("inc");
  TensorId x = double_conv(builder, "inc", images(builder, inputs, levels), channels, norm);
  std::vector<TensorId> skipped;
  for (std::int64_t level = 1; level <= levels; ++level) {
    const std::string name = fmt::format("down{}", level);
    builder.layer(name);
    skipped.push_back(x);
    x = layers::maxpool2d(builder, name + ".maxpool_conv.0", x, 2);
    x = double_conv(builder, name + ".maxpool_conv.1", x, channels << level, norm);
  }
  for (std::int64_t level = 1; level <= levels; ++level) {
    const std::string name = fmt::format("up{}", level);
    builder.layer(name);
    x = up(builder, name, x, skipped[static_cast<std::size_t>(levels - level)], norm);
  }
  builder.layer("outc");
  return classify_pixels(builder, "outc.conv", x, inputs);
}

}  // namespace

std::vector<Model> models() {
  return {{.name = "unet",
           .description = "U-Net: segmentation with 23 convolutions on five resolutions, batch-normalised",
           .sizes = {{"classes", kOfData}, {"hidden", 64}, {"layers", 4}},
           .sample = {.tensors = {{"images", DataType::kU8, {3, 512, 512}}, {"labels", DataType::kI32, {512, 512}}},
                      .classes = 2},
           .has_batch_norm = true,
           .build = build}};
}

}  // namespace poprun::models::unet
