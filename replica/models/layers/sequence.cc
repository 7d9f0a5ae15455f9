#include "replica/models/layers/sequence.h"

#include <cmath>

#include <fmt/format.h>

#include "replica/models/layers/layers.h"

namespace poprun::layers {
namespace {

bool is_sequence(const TensorType& type) {
  return type.shape.size() == 3 && type.layout == Layout::kRowMajor;
}

/// x [a,b,c] as [a,b,1,c] in that layout.
TensorId with_height(Builder& builder, const std::string& name, TensorId x, Layout layout) {
  const Shape& d = builder.type(x).shape;
  return reshape(builder, name, x, {d[0], d[1], 1, d[2]}, layout);
}

TensorId without_height(Builder& builder, const std::string& name, TensorId image) {
  if (!builder.status()) {
    return image;
  }
  const Shape& d = builder.type(image).shape;
  return reshape(builder, name, image, {d[0], d[1], d[3]});
}

/// True where x is a sequence; otherwise the builder refuses it by name.
bool accept(Builder& builder, const std::string& name, TensorId x) {
  if (builder.status() && !is_sequence(builder.type(x))) {
    builder.refuse(
        {ErrorCode::kUsage, fmt::format("{}: a layer of sequences needs f32[N,C,L]; it got {}",
                                        name, to_text(builder.type(x)))});
  }
  return builder.status().has_value();
}

TensorId pool(Builder& builder, const std::string& name, TensorId x, const std::string& kind,
              Attributes attributes, const SequenceWindow& window) {
  if (!accept(builder, name, x)) {
    return x;
  }
  attributes.set("stride", Shape{1, window.stride});
  attributes.set("pad", Shape{0, window.pad_begin, 0, window.pad_end});
  attributes.set("ceil", std::int64_t{window.ceil});
  const TensorId image = with_height(builder, name + ".image", x, Layout::kChannelsLast);
  return without_height(builder, name,
                        builder.add_one(kind, {image}, std::move(attributes), name + ".pooled"));
}

}  // namespace

TensorId conv1d(Builder& builder, const std::string& name, TensorId x, TensorId w,
                const std::vector<TensorId>& bias, const SequenceWindow& window,
                std::int64_t groups) {
  if (!accept(builder, name, x) || !accept(builder, name + ".weight", w)) {
    return x;
  }
  std::vector<TensorId> inputs = {with_height(builder, name + ".image", x, Layout::kChannelsLast),
                                  with_height(builder, name + ".filters", w, Layout::kRowMajor)};
  inputs.insert(inputs.end(), bias.begin(), bias.end());
  const TensorId y = builder.add_one("conv2d", inputs,
                                     {{"stride", Shape{1, window.stride}},
                                      {"pad", Shape{0, window.pad_begin, 0, window.pad_end}},
                                      {"dilation", Shape{1, window.dilation}},
                                      {"groups", groups}},
                                     name + ".convolved");
  return without_height(builder, name, y);
}

TensorId conv1d(Builder& builder, const std::string& name, TensorId x,
                const SequenceConvolution& c) {
  if (!accept(builder, name, x)) {
    return x;
  }
  const std::int64_t in = builder.type(x).shape[1] / c.groups;
  const Initialiser uniform{.distribution = Distribution::kUniform,
                            .value = 1.0 / std::sqrt(static_cast<double>(in * c.kernel))};
  const auto parameter = [&](const std::string& which, Shape shape) {
    return builder.variable(name + which, {DataType::kF32, std::move(shape), {}}, Role::kParameter,
                            uniform);
  };
  const TensorId w = parameter(".weight", {c.channels, in, c.kernel});
  std::vector<TensorId> bias;
  if (c.bias) {
    bias.push_back(parameter(".bias", {c.channels}));
  }
  return conv1d(builder, name, x, w, bias, c.window, c.groups);
}

TensorId maxpool1d(Builder& builder, const std::string& name, TensorId x, std::int64_t size,
                   const SequenceWindow& window) {
  return pool(builder, name, x, "maxpool2d", {{"window", Shape{1, size}}}, window);
}

TensorId avgpool1d(Builder& builder, const std::string& name, TensorId x, std::int64_t size,
                   const SequenceWindow& window) {
  return pool(builder, name, x, "avgpool2d",
              {{"window", Shape{1, size}}, {"count_pad", std::int64_t{window.count_pad}}}, window);
}

}  // namespace poprun::layers
