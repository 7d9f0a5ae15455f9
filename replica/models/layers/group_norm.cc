#include "replica/models/layers/group_norm.h"

#include <fmt/format.h>

#include "replica/models/layers/layers.h"

namespace poprun::layers {
namespace {

/// Brings rows of `width` elements to mean 0 and variance 1.
TensorId normalise_rows(Builder& builder, const std::string& name, TensorId rows,
                        std::int64_t width, double epsilon) {
  const auto constant = [&](double value, const std::string& suffix) {
    return builder.add_one("fill", {}, {{"shape", Shape{width}}, {"value", value}}, name + suffix);
  };
  return builder.add("layer_norm", {rows, constant(1, ".ones"), constant(0, ".zeros")},
                     {{"epsilon", epsilon}},
                     {name + ".normalised", name + ".mean", name + ".variance"})[0];
}

/// True if x has channels that `groups` divides; otherwise the builder refuses, naming `name`.
bool accept(Builder& builder, const std::string& name, TensorId x, std::int64_t groups) {
  if (!builder.status()) {
    return false;
  }
  const TensorType& type = builder.type(x);
  if (type.shape.size() < 2 || type.elements() == 0 || groups < 1 || type.shape[1] % groups != 0) {
    builder.refuse({ErrorCode::kUsage,
                    fmt::format("{}: group normalisation needs f32[N,C,...] and groups that "
                                "divide C; it got {} and {} groups",
                                name, to_text(type), groups)});
  }
  return builder.status().has_value();
}

}  // namespace

TensorId group_norm(Builder& builder, const std::string& name, TensorId x, TensorId w, TensorId b,
                    std::int64_t groups, double epsilon) {
  if (!accept(builder, name, x, groups)) {
    return x;
  }
  const TensorType type = builder.type(x);
  const std::int64_t rows = type.shape[0] * groups;
  const std::int64_t width = type.elements() / rows;
  const TensorId grouped = reshape(builder, name + ".groups", x, {rows, width});
  const TensorId normalised =
      reshape(builder, name + ".channels", normalise_rows(builder, name, grouped, width, epsilon),
              type.shape, type.layout);
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
