#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "replica/graph/types.h"

/// Helpers for the shapes and axes that operators specify in their attributes.
namespace poprun {

/// Returns the attributes of expand, reshape and sum_to for an output type: `shape=[..] layout="row-major" | "nhwc"`.
inline Attributes shaped(Shape shape, Layout layout = Layout::kRowMajor) {
  const std::string text = layout == Layout::kChannelsLast ? "nhwc" : "row-major";
  return {{"shape", std::move(shape)}, {"layout", text}};
}

/// Returns the type that the attributes describe, with elements of type `data`. Returns nothing if an attribute is
/// missing, or if the layout is nhwc and the rank is not 4.
inline std::optional<TensorType> shaped_type(DataType data, const Attributes& attributes) {
  if (!attributes.has("shape") || !attributes.has("layout")) {
    return std::nullopt;
  }
  const bool image = attributes.text("layout") == "nhwc";
  const Shape& shape = attributes.integers("shape");
  if (image && shape.size() != 4) {
    return std::nullopt;
  }
  return TensorType{data, shape, image ? Layout::kChannelsLast : Layout::kRowMajor};
}

/// Returns whether the type is f32[N,C,H,W]{nhwc}.
inline bool is_image(const TensorType& type) {
  return type.data == DataType::kF32 && type.shape.size() == 4 && type.layout == Layout::kChannelsLast;
}

/// Returns whether the attribute exists and consists of `count` integers, each of which is at least `least`.
inline bool are_integers(const Attributes& attributes, const std::string& name, std::size_t count, std::int64_t least) {
  return attributes.has(name) && attributes.integers(name).size() == count &&
         std::ranges::min(attributes.integers(name)) >= least;
}

/// The shape of a tensor as seen by an operator that works along one axis: [O,A,R], with dimensions in memory order.
struct AxisView {
  std::int64_t O;  ///< Product of the dimensions before the axis.
  std::int64_t A;  ///< Size of the axis.
  std::int64_t R;  ///< Product of the dimensions after it.
};

/// Returns the view along `axis`. Requires: `axis` is a (logical) dimension of `type`.
AxisView view_along(const TensorType& type, std::int64_t axis);

/// Returns whether the attribute `axis` is a dimension of `type`.
bool has_axis(const TensorType& type, const Attributes& attributes);

/// Return the size of a dimension, and a copy of `type` in which that dimension has a new size.
std::int64_t size_along(const TensorType& type, std::int64_t axis);
TensorType resized(TensorType type, std::int64_t axis, std::int64_t size);

}  // namespace poprun
