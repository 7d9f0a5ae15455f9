#include "replica/models/layers/resnet.h"

#include <fmt/format.h>

#include "replica/models/layers/layers.h"

namespace poprun::layers {
namespace {

/// A convolution without bias, normalised. Both are called as torchvision calls them.
TensorId normalised(Builder& builder, const std::string& convolution, const std::string& norm,
                    TensorId x, Convolution c, bool training) {
  c.bias = false;
  c.kaiming_normal = true;
  return batch_norm(builder, norm, conv2d(builder, convolution, x, c), training);
}

}  // namespace

Sample imagenet_sample() {
  return {.tensors = {{"images", DataType::kU8, {3, 224, 224}}, {"labels", DataType::kI32, {}}},
          .classes = 1000};
}

TensorId bottleneck(Builder& builder, const std::string& name, TensorId x, std::int64_t width,
                    std::int64_t channels, std::int64_t stride, std::int64_t groups,
                    bool training) {
  TensorId y =
      normalised(builder, name + ".conv1", name + ".bn1", x, {.channels = width}, training);
  y = relu(builder, name + ".relu1", y);
  y = normalised(builder, name + ".conv2", name + ".bn2", y,
                 {.channels = width, .kernel = 3, .stride = stride, .pad = 1, .groups = groups},
                 training);
  y = relu(builder, name + ".relu2", y);
  y = normalised(builder, name + ".conv3", name + ".bn3", y, {.channels = channels}, training);
  if (builder.status() && builder.type(x) != builder.type(y)) {
    x = normalised(builder, name + ".downsample.0", name + ".downsample.1", x,
                   {.channels = channels, .stride = stride}, training);
  }
  return relu(builder, name + ".relu3", add(builder, name + ".add", y, x));
}

ModelOutputs resnet(Builder& builder, const ModelInputs& inputs, const ResNet& network) {
  const TensorId images = inputs.find(builder, "images");
  const TensorId labels = inputs.find(builder, "labels");

  TensorId x = normalize(builder, images, inputs.mean, inputs.deviation);
  x = normalised(builder, "conv1", "bn1", x, {.channels = 64, .kernel = 7, .stride = 2, .pad = 3},
                 inputs.training);
  x = relu(builder, "relu", x);
  x = maxpool2d(builder, "maxpool", x, 3, 2, 1);
  for (std::size_t stage = 0; stage < network.blocks.size(); ++stage) {
    const std::int64_t scale = std::int64_t{1} << stage;
    const std::int64_t width = network.groups * network.width_per_group * scale;
    for (std::int64_t block = 0; block < network.blocks[stage]; ++block) {
      const std::int64_t stride = block == 0 && stage > 0 ? 2 : 1;
      x = bottleneck(builder, fmt::format("layer{}.{}", stage + 1, block), x, width, 256 * scale,
                     stride, network.groups, inputs.training);
    }
  }
  x = flatten(builder, "features", global_average(builder, "avgpool", x));
  x = linear(builder, "fc", x, inputs.classes);
  const auto outputs =
      builder.add("softmax_cross_entropy", {x, labels}, {}, {"loss", "correct", "count"});
  return {.loss = outputs[0], .correct = outputs[1], .count = outputs[2], .prediction = x};
}

}  // namespace poprun::layers
