#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/compiler/differentiation/differentiate.h"
#include "replica/ops/builder/builder.h"

/// How an optimiser (ops/optimizers/) takes part in a job: its state, and an update of every
/// parameter.
namespace poprun {

/// Parameters of one dimension at most: biases, and the scales of normalisations.
inline constexpr std::string_view kVectors = "vectors";

struct OptimizerOptions {
  std::string name;
  std::map<std::string, double> hyper_parameters = {};  ///< All of the optimiser's.
  double weight_decay = 0;
  double gradient_scale = 1;  ///< Gradients are multiplied by it first.
  double clip_norm = 0;       ///< Largest norm of all gradients together, after scaling; 0: any.
  /// Parameters without weight decay: those whose names it matches (ECMAScript), or kVectors.
  std::string no_decay = {};
  bool master_weights = false;  ///< Works on a copy of each parameter of its own, and copies back.
};

/// Scalars f32[] that change from step to step.
struct StepScalars {
  TensorId rate;  ///< Learning rate, from the host.
  TensorId step;  ///< Number of this update from 1, from the host; skipped steps do not count.
  /// What the loss was multiplied by, from the host. Gradients are divided by it; where one of them
  /// is not finite, nothing is updated.
  std::optional<TensorId> loss_scale = {};
  /// By the dataset's tensor of labels: how many of them a mean micro-batch has, from the host.
  std::map<std::string, TensorId> mean_labels = {};
  std::optional<TensorId> factor = {};  ///< Scales all gradients; made by add_gradient_factor.
};

/// Appends what all gradients are multiplied by, where clipping or a scaled loss ask for one, and
/// sets scalars.factor.
void add_gradient_factor(Builder& builder, const OptimizerOptions& options,
                         const std::vector<ParameterGradient>& gradients, StepScalars& scalars);

/// Appends the update of every parameter, and sets up the optimiser's state. Errors: kUsage, no
/// such optimiser, with those there are; a hyper-parameter that it lacks, or that is missing;
/// `no_decay` matches no parameter, or all.
Status add_optimizer(Builder& builder, const OptimizerOptions& options,
                     const std::vector<ParameterGradient>& gradients, const StepScalars& scalars);

}  // namespace poprun
