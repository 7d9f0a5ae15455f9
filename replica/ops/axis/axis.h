#pragma once

#include <cstdint>

#include "replica/graph/attributes.h"
#include "replica/graph/types.h"

namespace poprun {

/// A tensor as operators along one axis see it, dimensions as they lie in memory: [O,A,R].
struct AxisView {
  std::int64_t O;  ///< Dimensions before the axis, taken as one.
  std::int64_t A;  ///< The axis.
  std::int64_t R;  ///< Dimensions behind it, in elements.
};

/// Requires: axis is a (logical) dimension of type.
AxisView view_along(const TensorType& type, std::int64_t axis);

/// True where the attribute `axis` names a dimension of type.
bool has_axis(const TensorType& type, const Attributes& attributes);

/// Size of a dimension, and `type` with another one.
std::int64_t size_along(const TensorType& type, std::int64_t axis);
TensorType resized(TensorType type, std::int64_t axis, std::int64_t size);

}  // namespace poprun
