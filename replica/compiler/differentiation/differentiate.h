#pragma once

#include <set>
#include <vector>

#include "replica/base/error.h"
#include "replica/ops/builder/builder.h"

namespace poprun {

/// A parameter and the tensor that holds the loss's gradient by it.
struct ParameterGradient {
  TensorId parameter;
  TensorId gradient;
};

/// Appends to `builder`'s region the operations that compute the gradient of `loss` (f32[], made in
/// that region) by every parameter it depends on that is not `frozen`, times `scale` (f32[]):
/// reverse mode, by the operators' own rules, in reverse order of the forward operations.
/// Contributions of several uses are added in that order.
///
/// Returns the gradients sorted by parameter name.
/// Errors: kUsage, an operation on the way to a parameter that has no gradient, by name; kBug, the
/// loss depends on no such parameter.
Result<std::vector<ParameterGradient>> differentiate(Builder& builder, TensorId loss,
                                                     TensorId scale,
                                                     const std::set<TensorId>& frozen = {});

}  // namespace poprun
