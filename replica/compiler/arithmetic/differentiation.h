#pragma once

#include <set>
#include <vector>

#include "replica/base/error.h"
#include "replica/compiler/job/pass.h"
#include "replica/ops/builder/builder.h"

namespace poprun {

/// A part of a loss, and what its gradient is multiplied by. Both f32[].
struct ScaledLoss {
  TensorId loss;
  TensorId scale;
};

/// Appends to `builder`'s region the operations that compute the gradient of the sum of `losses` (made in that region,
/// none from another), each times its scale, with respect to every parameter that they depend on and that is not
/// `frozen`: reverse mode, by the operators' own rules, in reverse order of the forward operations.
///
/// A use of a parameter is a forward operation that names it. Each use has a gradient of its own, so that wherever and
/// however often backward runs, a parameter's gradient is the same sum of the same terms. For any other tensor the
/// contributions are added as they come.
///
/// Returns the gradients sorted by parameter name, those of one parameter last use first.
/// Errors: kUsage, an operation on the way to a parameter that has no gradient, by name, or the loss depends on no such
/// parameter.
Result<std::vector<ParameterGradient>> differentiate(Builder& builder, const std::vector<ScaledLoss>& losses,
                                                     const std::set<TensorId>& frozen = {});

}  // namespace poprun
