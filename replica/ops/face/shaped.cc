#include "replica/ops/face/shaped.h"

#include <array>
#include <functional>
#include <numeric>

namespace poprun {

AxisView view_along(const TensorType& type, std::int64_t axis) {
  Shape stored = type.shape;
  if (type.layout == Layout::kChannelsLast) {
    stored = {stored[0], stored[2], stored[3], stored[1]};
    axis = std::array<std::int64_t, 4>{0, 3, 1, 2}[static_cast<std::size_t>(axis)];
  }
  const auto at = stored.begin() + axis;
  return {.O = std::accumulate(stored.begin(), at, std::int64_t{1}, std::multiplies<>{}),
          .A = *at,
          .R = std::accumulate(at + 1, stored.end(), std::int64_t{1}, std::multiplies<>{})};
}

bool has_axis(const TensorType& type, const Attributes& attributes) {
  return attributes.has("axis") && attributes.integer("axis") >= 0 &&
         attributes.integer("axis") < static_cast<std::int64_t>(type.shape.size());
}

std::int64_t size_along(const TensorType& type, std::int64_t axis) {
  return type.shape[static_cast<std::size_t>(axis)];
}

TensorType resized(TensorType type, std::int64_t axis, std::int64_t size) {
  type.shape[static_cast<std::size_t>(axis)] = size;
  return type;
}

}  // namespace poprun
