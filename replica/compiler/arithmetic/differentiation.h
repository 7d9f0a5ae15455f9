#pragma once

#include <set>
#include <vector>

#include "replica/base/error.h"
#include "replica/compiler/job/pass.h"
#include "replica/ops/builder/builder.h"

namespace poprun {

struct ScaledLoss {
  TensorId loss;
  TensorId scale;
};

/// Appends to `builder`'s region the operations that compute the gradient of the sum of `losses` (made in that region,
/// independently of one another), each multiplied by its scale, with respect to every parameter that they depend on and
/// that is not `frozen`. Applies the operators' gradient rules (reverse mode) in reverse order of the operations.
///
/// A use of a parameter is a forward operation that names it. Each has its own gradient, so that a parameter's gradient
/// is the same sum of the same terms, wherever and however often the backward pass runs. Other contributions are added
/// as they come.
///
/// Returns the gradients sorted by parameter name and, for one parameter, last use first. Errors: kUsage if an
/// operation between the loss and a parameter has no gradient (names it), or if the loss depends on no parameter that
/// is not frozen.
Result<std::vector<ParameterGradient>> differentiate(Builder& builder, const std::vector<ScaledLoss>& losses,
                                                     const std::set<TensorId>& frozen = {});

}  // namespace poprun
