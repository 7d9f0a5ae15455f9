#include <algorithm>
#include <cstdint>
#include <limits>

#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"

/// Conversions between element types.
///
///   cast(x) to="f32" | "i32" | "u8"  ->  y, of x's shape and layout
///   one_hot(indices i32[...]) depth=. on=. off=.  ->  f32[...,depth], `on` at each index and `off` elsewhere
///
/// Casts to integers truncate, clamp values to the type's range, and turn NaN into 0. Casts to f32 round integers
/// beyond 2^24. A negative index counts from the end. For an index outside [-depth, depth), every element is `off`.
/// Neither operator passes a gradient.
namespace poprun::ops::cast {
namespace {

bool parse(const Attributes& attributes, DataType& type) {
  if (!attributes.has("to")) {
    return false;
  }
  const std::string& to = attributes.text("to");
  type = to == "f32" ? DataType::kF32 : to == "i32" ? DataType::kI32 : DataType::kU8;
  return to == "f32" || to == "i32" || to == "u8";
}

Result<std::vector<TensorType>> cast_shape(const Signature& s) {
  DataType to{};
  if (s.inputs.size() != 1 || !parse(s.attributes, to)) {
    return shape_error(kinds::kCast, s, "one tensor and to=\"f32\", \"i32\" or \"u8\"");
  }
  TensorType y = s.inputs[0];
  y.data = to;
  return std::vector{y};
}

/// Converts through double, which represents every value of the three types exactly.
template <typename To, typename From>
To converted(From from) {
  const auto x = static_cast<double>(from);
  if constexpr (std::numeric_limits<To>::is_integer) {
    constexpr auto kLeast = static_cast<double>(std::numeric_limits<To>::min());
    constexpr auto kMost = static_cast<double>(std::numeric_limits<To>::max());
    return x != x ? To{0} : static_cast<To>(std::clamp(x, kLeast, kMost));
  } else {
    return static_cast<To>(x);
  }
}

template <typename To, typename From>
std::unique_ptr<Kernel> convert(std::int64_t n) {
  return make_kernel([n](const Operands& t) {
    const From* x = reinterpret_cast<const From*>(t.inputs[0]);  // NOLINT: a tensor of From.
    To* y = reinterpret_cast<To*>(t.outputs[0]);                 // NOLINT: a tensor of To.
    std::transform(x, x + n, y, converted<To, From>);
  });
}

template <typename To>
std::unique_ptr<Kernel> convert_to(const Signature& s) {
  const std::int64_t n = s.inputs[0].elements();
  if (s.inputs[0].data == DataType::kF32) {
    return convert<To, float>(n);
  }
  if (s.inputs[0].data == DataType::kI32) {
    return convert<To, std::int32_t>(n);
  }
  return convert<To, std::uint8_t>(n);
}

std::unique_ptr<Kernel> cast_numerics(const Signature& s) {
  if (s.outputs[0].data == DataType::kF32) {
    return convert_to<float>(s);
  }
  if (s.outputs[0].data == DataType::kI32) {
    return convert_to<std::int32_t>(s);
  }
  return convert_to<std::uint8_t>(s);
}

Work one_flop(const Signature& s) {
  return elementwise_work(s, 1);
}

Result<std::vector<TensorType>> one_hot_shape(const Signature& s) {
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kI32 || s.inputs[0].layout != Layout::kRowMajor ||
      !s.attributes.has("depth") || s.attributes.integer("depth") < 1 || !s.attributes.has("on") ||
      !s.attributes.has("off")) {
    return shape_error("one_hot", s, "indices i32[...], and the attributes depth (>= 1), on and off");
  }
  TensorType y{DataType::kF32, s.inputs[0].shape, {}};
  y.shape.push_back(s.attributes.integer("depth"));
  return std::vector{y};
}

std::unique_ptr<Kernel> one_hot_numerics(const Signature& s) {
  return make_kernel([n = s.inputs[0].elements(), depth = s.attributes.integer("depth"),
                      on = static_cast<float>(s.attributes.real("on")),
                      off = static_cast<float>(s.attributes.real("off"))](const Operands& t) {
    const auto* indices = reinterpret_cast<const std::int32_t*>(t.inputs[0]);  // NOLINT: i32.
    std::fill_n(t.output_f32(0), n * depth, off);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t index = indices[i] < 0 ? indices[i] + depth : indices[i];
      if (index >= 0 && index < depth) {
        t.output_f32(0)[i * depth + index] = on;
      }
    }
  });
}

}  // namespace

std::vector<Operator> operators() {
  return {{kinds::kCast, cast_shape, flat, one_flop, cast_numerics},
          {"one_hot", one_hot_shape, flat, one_flop, one_hot_numerics}};
}

}  // namespace poprun::ops::cast
