#include "replica/models/layers/layers.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "replica/ops/face/shaped.h"

namespace poprun::layers {
namespace {

Initialiser default_initialiser(std::int64_t fan_in) {
  return {.distribution = Distribution::kUniform, .value = 1.0 / std::sqrt(static_cast<double>(fan_in))};
}

TensorId parameter(Builder& builder, const std::string& name, Shape shape, std::int64_t fan_in) {
  return builder.variable(name, {DataType::kF32, std::move(shape), Layout::kRowMajor}, Role::kParameter,
                          default_initialiser(fan_in));
}

/// Returns the size of x's dimension `d`. If x has too few dimensions, returns 1, and shape inference refuses x later.
std::int64_t dimension(const Builder& builder, TensorId x, std::size_t d) {
  const Shape& shape = builder.type(x).shape;
  return d < shape.size() ? shape[d] : 1;
}

/// Normalises each row of `width` elements to mean 0 and variance 1.
TensorId normalise_rows(Builder& builder, const std::string& name, TensorId rows, std::int64_t width, double epsilon) {
  const auto constant = [&](double value, const std::string& suffix) {
    return builder.add_one("fill", {}, {{"shape", Shape{width}}, {"value", value}}, name + suffix);
  };
  return builder.add("layer_norm", {rows, constant(1, ".ones"), constant(0, ".zeros")}, {{"epsilon", epsilon}},
                     {name + ".normalised", name + ".mean", name + ".variance"})[0];
}

/// Returns whether `groups` divides the channels of x. If not, makes the builder refuse the layer called `name`.
bool accept(Builder& builder, const std::string& name, TensorId x, std::int64_t groups) {
  if (!builder.status()) {
    return false;
  }
  const TensorType& type = builder.type(x);
  if (type.shape.size() < 2 || type.elements() == 0 || groups < 1 || type.shape[1] % groups != 0) {
    builder.refuse({ErrorCode::kUsage, fmt::format("{}: group normalisation needs f32[N,C,...] and a number of "
                                                   "groups that divides C; given: {} and {} groups",
                                                   name, to_text(type), groups)});
  }
  return builder.status().has_value();
}

}  // namespace

TensorId normalize(Builder& builder, TensorId images, double mean, double deviation) {
  if (!builder.status()) {
    return images;
  }
  const TensorType type = builder.type(images);
  if (type.data == DataType::kF32 && type.shape.size() == 4) {
    return reshape(builder, "images.nhwc", images, type.shape, Layout::kChannelsLast);
  }
  if (type.data == DataType::kF32) {
    return images;
  }
  if (type.shape.size() == 2) {
    images = reshape(builder, "images.features", images, {type.shape[0], type.shape[1], 1, 1});
  }
  return builder.add_one("normalize", {images}, {{"mean", mean}, {"deviation", deviation}}, "normalized");
}

TensorId images(Builder& builder, const ModelInputs& inputs, const ImageNeeds& needs) {
  const TensorId images = inputs.find(builder, "images");
  if (!builder.status()) {
    return images;
  }
  const TensorType& type = builder.type(images);
  const Shape& s = type.shape;
  const bool planes = s.size() == 4 && std::min(s[2], s[3]) >= needs.least_size;
  const bool fits = planes || (s.size() == 2 && !needs.planes);
  if (!fits || type.data == DataType::kI32) {
    builder.refuse({ErrorCode::kUsage,
                    fmt::format("data.source: the model needs u8 or f32 images [N,C,H,W]{}, but the dataset has {}",
                                needs.planes ? fmt::format(" of at least {0} x {0} pixels", needs.least_size)
                                             : " or features [N,F]",
                                to_text(type))});
    return images;
  }
  return normalize(builder, images, inputs.mean, inputs.deviation);
}

ModelOutputs classify(Builder& builder, const std::string& name, TensorId x, const ModelInputs& inputs) {
  const bool scored = inputs.scored();
  const TensorId labels = scored ? inputs.find(builder, "labels") : x;
  if (!builder.status()) {
    return {};
  }
  const TensorType needed{DataType::kI32, {dimension(builder, x, 0)}, Layout::kRowMajor};
  if (scored && builder.type(labels) != needed) {
    builder.refuse(
        {ErrorCode::kUsage, fmt::format("data.source: the model needs labels of type {}, one per item, but the dataset "
                                        "has {}; save classes as integers (one-hot labels: argmax(axis=-1))",
                                        to_text(needed), to_text(builder.type(labels)))});
  }
  const TensorId logits = linear(builder, name, x, classes_of(builder, inputs));
  return score(builder, logits, inputs, "loss");
}

std::int64_t classes_of(Builder& builder, const ModelInputs& inputs) {
  const std::int64_t given = inputs.size("classes");
  const std::int64_t classes = given == kOfData ? inputs.classes : given;
  if (!inputs.scored() && classes < 1) {
    builder.refuse({ErrorCode::kUsage,
                    "model.classes: the dataset has no labels to infer the number of classes from; "
                    "set it to the number of classes that the weights were trained for"});
  } else if (classes < std::max<std::int64_t>(inputs.classes, 1)) {
    builder.refuse({ErrorCode::kUsage, fmt::format("model.classes = {}: the dataset has labels up to {}, so at least "
                                                   "{} classes are needed",
                                                   classes, inputs.classes - 1, inputs.classes)});
  }
  return classes;
}

ModelOutputs score(Builder& builder, TensorId logits, const ModelInputs& inputs, const std::string& loss) {
  if (!inputs.scored()) {
    return {.prediction = logits, .scored = false};
  }
  const auto outputs =
      builder.add("softmax_cross_entropy", {logits, inputs.find(builder, "labels")}, {}, {loss, "correct", "count"});
  return {.loss = outputs[0], .correct = outputs[1], .count = outputs[2], .prediction = logits};
}

TensorId conv2d(Builder& builder, const std::string& name, TensorId x, const Convolution& c) {
  if (!builder.status()) {
    return x;
  }
  const std::int64_t taps = c.kernel * c.kernel;
  const std::int64_t in = dimension(builder, x, 1) / c.groups;
  const TensorType type{DataType::kF32, {c.channels, in, c.kernel, c.kernel}, Layout::kRowMajor};
  const Initialiser normal{.distribution = Distribution::kNormal,
                           .value = std::sqrt(2.0 / static_cast<double>(c.channels * taps))};
  std::vector<TensorId> inputs = {x, builder.variable(name + ".weight", type, Role::kParameter,
                                                      c.kaiming_normal ? normal : default_initialiser(in * taps))};
  if (c.bias) {
    inputs.push_back(parameter(builder, name + ".bias", {c.channels}, in * taps));
  }
  return builder.add_one("conv2d", inputs,
                         {{"stride", Shape{c.stride, c.stride}},
                          {"pad", Shape{c.pad, c.pad, c.pad, c.pad}},
                          {"dilation", Shape{1, 1}},
                          {"groups", c.groups}},
                         name);
}

TensorId conv2d_transpose(Builder& builder, const std::string& name, TensorId x, const Convolution& c) {
  if (!builder.status()) {
    return x;
  }
  const Shape s = builder.type(x).shape;
  const std::int64_t fan_in = c.channels / c.groups * c.kernel * c.kernel;  // As PyTorch computes it from the weight.
  const TensorId w = parameter(builder, name + ".weight",
                               {dimension(builder, x, 1), c.channels / c.groups, c.kernel, c.kernel}, fan_in);
  const auto size = [&c](std::int64_t in) { return (in - 1) * c.stride - 2 * c.pad + c.kernel; };
  const TensorId y = builder.add_one("conv2d_input_gradient", {x, w},
                                     {{"stride", Shape{c.stride, c.stride}},
                                      {"pad", Shape{c.pad, c.pad, c.pad, c.pad}},
                                      {"dilation", Shape{1, 1}},
                                      {"groups", c.groups},
                                      {"input_shape", Shape{s.at(0), c.channels, size(s.at(2)), size(s.at(3))}}},
                                     c.bias ? name + ".spread" : name);
  if (!c.bias) {
    return y;
  }
  const TensorId bias = parameter(builder, name + ".bias", {c.channels}, fan_in);
  const TensorId column = reshape(builder, name + ".bias.column", bias, {c.channels, 1, 1});
  return builder.add_one("add", {y, column}, {}, name);
}

TensorId batch_norm(Builder& builder, const std::string& name, TensorId x, bool training) {
  if (!builder.status()) {
    return x;
  }
  const Attributes eps{{"eps", 1e-5}};
  const std::int64_t C = dimension(builder, x, 1);
  const TensorType type{DataType::kF32, {C}, Layout::kRowMajor};
  const TensorId w = builder.variable(name + ".weight", type, Role::kParameter, {.value = 1});
  const TensorId b = builder.variable(name + ".bias", type, Role::kParameter, {.value = 0});
  const TensorId running_mean = builder.variable(name + ".running_mean", type, Role::kBuffer, {.value = 0});
  const TensorId running_variance = builder.variable(name + ".running_var", type, Role::kBuffer, {.value = 1});
  if (!training) {
    return builder.add_one("batch_norm_inference", {x, w, b, running_mean, running_variance}, eps, name);
  }
  const auto y = builder.add("batch_norm_training", {x, w, b}, eps, {name, name + ".mean", name + ".variance"});
  builder.update("batch_norm_update", {running_mean, running_variance, y[1], y[2]},
                 {{"momentum", 0.1}, {"elements", builder.type(x).elements() / C}}, {running_mean, running_variance});
  return y[0];
}

TensorId relu(Builder& builder, const std::string& name, TensorId x) {
  return builder.add_one("relu", {x}, {}, name);
}

TensorId silu(Builder& builder, const std::string& name, TensorId x) {
  const TensorId gate = builder.add_one("sigmoid", {x}, {}, name + ".sigmoid");
  return builder.add_one("mul", {x, gate}, {}, name);
}

TensorId maxpool2d(Builder& builder, const std::string& name, TensorId x, std::int64_t size) {
  return maxpool2d(builder, name, x, size, size, 0);
}

TensorId maxpool2d(Builder& builder, const std::string& name, TensorId x, std::int64_t size, std::int64_t stride,
                   std::int64_t pad) {
  return builder.add_one("maxpool2d", {x},
                         {{"window", Shape{size, size}},
                          {"stride", Shape{stride, stride}},
                          {"pad", Shape{pad, pad, pad, pad}},
                          {"ceil", std::int64_t{0}}},
                         name);
}

TensorId global_average(Builder& builder, const std::string& name, TensorId x) {
  if (!builder.status()) {
    return x;
  }
  return builder.add_one("avgpool2d", {x},
                         {{"window", Shape{dimension(builder, x, 2), dimension(builder, x, 3)}},
                          {"stride", Shape{1, 1}},
                          {"pad", Shape{0, 0, 0, 0}},
                          {"ceil", std::int64_t{0}},
                          {"count_pad", std::int64_t{0}}},
                         name);
}

TensorId flatten(Builder& builder, const std::string& name, TensorId x) {
  if (!builder.status()) {
    return x;
  }
  const TensorType& type = builder.type(x);
  if (type.shape.size() == 2) {
    return x;
  }
  const std::int64_t rows = dimension(builder, x, 0);
  return reshape(builder, name, x, {rows, type.elements() / rows});
}

TensorId reshape(Builder& builder, const std::string& name, TensorId x, Shape shape, Layout layout) {
  return builder.add_one("reshape", {x}, shaped(std::move(shape), layout), name);
}

TensorId add(Builder& builder, const std::string& name, TensorId a, TensorId b) {
  return builder.add_one("add", {a, b}, {}, name);
}

TensorId linear(Builder& builder, const std::string& name, TensorId x, std::int64_t features) {
  if (!builder.status()) {
    return x;
  }
  const std::int64_t in = dimension(builder, x, 1);
  const TensorId w = parameter(builder, name + ".weight", {features, in}, in);
  const TensorId b = parameter(builder, name + ".bias", {features}, in);
  return builder.add_one("linear", {x, w, b}, {}, name);
}

TensorId group_norm(Builder& builder, const std::string& name, TensorId x, TensorId w, TensorId b, std::int64_t groups,
                    double epsilon) {
  if (!accept(builder, name, x, groups)) {
    return x;
  }
  const TensorType type = builder.type(x);
  const std::int64_t rows = type.shape[0] * groups;
  const std::int64_t width = type.elements() / rows;
  const TensorId grouped = reshape(builder, name + ".groups", x, {rows, width});
  const TensorId normalised = reshape(builder, name + ".channels",
                                      normalise_rows(builder, name, grouped, width, epsilon), type.shape, type.layout);
  Shape channels(type.shape.size() - 1, 1);
  channels[0] = type.shape[1];
  const TensorId scale = reshape(builder, name + ".scale", w, channels);
  const TensorId shift = reshape(builder, name + ".shift", b, channels);
  const TensorId scaled = builder.add_one("mul", {normalised, scale}, {}, name + ".scaled");
  return builder.add_one("add", {scaled, shift}, {}, name);
}

TensorId group_norm(Builder& builder, const std::string& name, TensorId x, std::int64_t groups) {
  if (!accept(builder, name, x, groups)) {
    return x;
  }
  const TensorType type{DataType::kF32, {builder.type(x).shape[1]}, Layout::kRowMajor};
  const TensorId w = builder.variable(name + ".weight", type, Role::kParameter, {.value = 1});
  const TensorId b = builder.variable(name + ".bias", type, Role::kParameter, {.value = 0});
  return group_norm(builder, name, x, w, b, groups, 1e-5);
}

}  // namespace poprun::layers
