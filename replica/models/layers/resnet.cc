#include "replica/models/layers/resnet.h"

#include <numeric>

#include <fmt/format.h>

#include "replica/models/layers/layers.h"

namespace poprun::layers {
namespace {

/// Number of groups of channels in group normalisation (Wu and He, "Group normalization", 2018). If it does not
/// divide the number of channels, there are fewer groups.
constexpr std::int64_t kGroups = 32;

/// Adds the end of a block: relu(y + x). If the types of x and y differ, x first passes through a 1x1 convolution.
TensorId residual(Builder& builder, const std::string& name, const std::string& relu_name, TensorId x, TensorId y,
                  std::int64_t stride, const Norm& norm) {
  if (!builder.status()) {
    return y;
  }
  if (builder.type(x) != builder.type(y)) {
    x = normalised(builder, name + ".downsample.0", name + ".downsample.1", x,
                   {.channels = builder.type(y).shape[1], .stride = stride}, norm);
  }
  return relu(builder, name + relu_name, add(builder, name + ".add", y, x));
}

}  // namespace

TensorId normalise(Builder& builder, const std::string& name, TensorId x, const Norm& norm) {
  if (!builder.status() || norm.kind == Normalisation::kBatch) {
    return batch_norm(builder, name, x, norm.training);
  }
  const std::int64_t channels = builder.type(x).shape[1];
  return group_norm(builder, name, x,
                    norm.kind == Normalisation::kGroup   ? std::gcd(kGroups, channels)
                    : norm.kind == Normalisation::kLayer ? 1
                                                         : channels);
}

Sample imagenet_sample() {
  return {.tensors = {{"images", DataType::kU8, {3, 224, 224}}, {"labels", DataType::kI32, {}}}, .classes = 1000};
}

TensorId normalised(Builder& builder, const std::string& convolution, const std::string& name, TensorId x,
                    Convolution c, const Norm& norm) {
  c.bias = false;
  c.kaiming_normal = true;
  return normalise(builder, name, conv2d(builder, convolution, x, c), norm);
}

TensorId basic_block(Builder& builder, const std::string& name, TensorId x, std::int64_t channels, std::int64_t stride,
                     const Norm& norm) {
  TensorId y = normalised(builder, name + ".conv1", name + ".bn1", x,
                          {.channels = channels, .kernel = 3, .stride = stride, .pad = 1}, norm);
  y = relu(builder, name + ".relu1", y);
  y = normalised(builder, name + ".conv2", name + ".bn2", y, {.channels = channels, .kernel = 3, .pad = 1}, norm);
  return residual(builder, name, ".relu2", x, y, stride, norm);
}

TensorId bottleneck(Builder& builder, const std::string& name, TensorId x, std::int64_t width, std::int64_t channels,
                    std::int64_t stride, std::int64_t groups, const Norm& norm) {
  TensorId y = normalised(builder, name + ".conv1", name + ".bn1", x, {.channels = width}, norm);
  y = relu(builder, name + ".relu1", y);
  y = normalised(builder, name + ".conv2", name + ".bn2", y,
                 {.channels = width, .kernel = 3, .stride = stride, .pad = 1, .groups = groups}, norm);
  y = relu(builder, name + ".relu2", y);
  y = normalised(builder, name + ".conv3", name + ".bn3", y, {.channels = channels}, norm);
  return residual(builder, name, ".relu3", x, y, stride, norm);
}

ModelOutputs resnet(Builder& builder, const ModelInputs& inputs, const ResNet& network) {
  const Norm norm{inputs.normalisation, inputs.training};
  builder.layer("conv1");
  TensorId x = images(builder, inputs, {});
  x = normalised(builder, "conv1", "bn1", x, {.channels = 64, .kernel = 7, .stride = 2, .pad = 3}, norm);
  x = relu(builder, "relu", x);
  x = maxpool2d(builder, "maxpool", x, 3, 2, 1);
  for (std::size_t stage = 0; stage < network.blocks.size(); ++stage) {
    const std::int64_t scale = std::int64_t{1} << stage;
    const std::int64_t width = network.groups * network.width_per_group * scale;
    for (std::int64_t block = 0; block < network.blocks[stage]; ++block) {
      const std::int64_t stride = block == 0 && stage > 0 ? 2 : 1;
      const std::string name = fmt::format("layer{}.{}", stage + 1, block);
      builder.layer(name);
      x = network.bottlenecks ? bottleneck(builder, name, x, width, 256 * scale, stride, network.groups, norm)
                              : basic_block(builder, name, x, 64 * scale, stride, norm);
    }
  }
  builder.layer("fc");
  x = flatten(builder, "features", global_average(builder, "avgpool", x));
  return classify(builder, "fc", x, inputs);
}

}  // namespace poprun::layers
