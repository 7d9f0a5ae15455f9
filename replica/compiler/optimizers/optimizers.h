#pragma once

#include <optional>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/compiler/differentiation/differentiate.h"
#include "replica/ops/builder/builder.h"

/// Optimisers. One file of this folder is one; it says which operator updates a parameter and what
/// state lies beside it.
namespace poprun {

struct OptimizerOptions {
  std::string name;
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;    ///< Gradients are multiplied by it first.
  double clip_norm = 0;         ///< Largest norm of all gradients together, after scaling; 0: any.
  bool master_weights = false;  ///< Works on a copy of each parameter of its own, and copies back.
};

/// Scalars f32[] that change from step to step.
struct StepScalars {
  TensorId rate;  ///< Learning rate, from the host.
  TensorId step;  ///< Number of this update from 1, from the host; skipped steps do not count.
  /// What the loss was multiplied by, from the host. Gradients are divided by it; where one of them
  /// is not finite, nothing is updated.
  std::optional<TensorId> loss_scale = {};
  std::optional<TensorId> factor = {};  ///< Of all gradients; made by add_gradient_factor.
};

/// One parameter, as an optimiser's file sees it.
class ParameterUpdate {
 public:
  ParameterUpdate(Builder& builder, const OptimizerOptions& options, const StepScalars& scalars,
                  const ParameterGradient& pair);

  [[nodiscard]] const OptimizerOptions& options() const { return options_; }
  [[nodiscard]] const StepScalars& scalars() const { return scalars_; }

  /// A tensor PARAMETER.name of the parameter's type, zero before the first step.
  TensorId state(const std::string& name);

  /// `apply` for an operator of Adam's family: states m and v, rate and step, betas and epsilon.
  void apply_adam(const std::string& kind);

  /// Appends operator `kind` on (parameter or its master copy, gradient, states..., scalars...),
  /// which updates parameter and states. Attributes scale and weight_decay are added to
  /// `attributes`.
  void apply(std::string kind, const std::vector<TensorId>& states,
             const std::vector<TensorId>& scalars, Attributes attributes);

 private:
  Builder& builder_;
  const OptimizerOptions& options_;
  const StepScalars& scalars_;
  const ParameterGradient& pair_;
  TensorId weights_;  ///< What is updated: the parameter, or its master copy.
};

struct Optimizer {
  std::string name;
  void (*update)(ParameterUpdate&) = nullptr;
};

/// Appends what all gradients are multiplied by, where clipping or a scaled loss ask for one, and
/// sets scalars.factor.
void add_gradient_factor(Builder& builder, const OptimizerOptions& options,
                         const std::vector<ParameterGradient>& gradients, StepScalars& scalars);

/// Appends the update of every parameter, and sets up the optimiser's state. Errors: kUsage, lists
/// the optimisers there are.
Status add_optimizer(Builder& builder, const OptimizerOptions& options,
                     const std::vector<ParameterGradient>& gradients, const StepScalars& scalars);

}  // namespace poprun
