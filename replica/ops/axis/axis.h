#pragma once

#include <cstdint>

#include "replica/graph/attributes.h"
#include "replica/graph/types.h"

namespace poprun {

/// The view that operators along one axis have of a tensor: [O,A,R], with dimensions in memory order.
struct AxisView {
  std::int64_t O;  ///< Product of the dimensions before the axis.
  std::int64_t A;  ///< Size of the axis.
  std::int64_t R;  ///< Product of the dimensions after it.
};

/// Returns the view along `axis`. Requires: `axis` is a (logical) dimension of `type`.
AxisView view_along(const TensorType& type, std::int64_t axis);

/// True if the attribute `axis` names a dimension of `type`.
bool has_axis(const TensorType& type, const Attributes& attributes);

/// Return the size of a dimension, and `type` with that size replaced.
std::int64_t size_along(const TensorType& type, std::int64_t axis);
TensorType resized(TensorType type, std::int64_t axis, std::int64_t size);

}  // namespace poprun
