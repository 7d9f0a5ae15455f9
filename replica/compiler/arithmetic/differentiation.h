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

/// Differentiates, in reverse mode, the sum of `losses`, each multiplied by its scale, with respect to every parameter
/// that the sum depends on and that is not `frozen`. The operators' gradient rules are applied in reverse order of the
/// operations, and append their own operations to `builder`'s region. Requires: `losses` are computed in that region,
/// independently of one another.
///
/// A use of a parameter is a forward operation that reads it. Each use has its own gradient, so that a parameter's
/// gradient is the same sum of the same terms, wherever and however often the backward pass runs. Contributions to the
/// gradient of any other tensor are added up as they arise.
///
/// Returns the gradients, sorted by parameter name. Those of one parameter are in reverse order of its uses. Errors:
/// kUsage if an operation between the loss and a parameter has no gradient rule (the message names the operation), or
/// if the loss does not depend on any parameter that is not frozen.
Result<std::vector<ParameterGradient>> differentiate(Builder& builder, const std::vector<ScaledLoss>& losses,
                                                     const std::set<TensorId>& frozen = {});

}  // namespace poprun
