#pragma once

#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/compiler/differentiation/differentiate.h"
#include "replica/ops/builder/builder.h"

namespace poprun {

struct OptimizerOptions {
  std::string name;  ///< "sgd" or "momentum".
  double momentum = 0;
  double weight_decay = 0;
  double gradient_scale = 1;  ///< Gradients are multiplied by it first.
};

/// Appends the update of every parameter, and sets up the optimiser's state, one tensor
/// PARAMETER.momentum each where it has any. `rate` is the learning rate, f32[].
/// Errors: kUsage, lists the optimisers there are.
Status add_optimizer(Builder& builder, const OptimizerOptions& options,
                     const std::vector<ParameterGradient>& gradients, TensorId rate);

}  // namespace poprun
