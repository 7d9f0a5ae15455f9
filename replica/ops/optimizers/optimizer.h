#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "replica/ops/face/operator.h"

/// Optimisers. Each has a file in this folder with its hyper-parameters, its state per parameter and its operator. The
/// compiler, the options and their help use the full list. No code here needs oneDNN, so the launcher can link it.
namespace poprun {

/// A hyper-parameter of an optimiser: training.NAME in train.cfg and the attribute NAME of the operator. A name has the
/// same meaning and range in all optimisers, but each optimiser sets its own default.
struct HyperParameter {
  struct Range {
    double least;
    double most;
    bool least_allowed = true;
    bool most_allowed = true;
    friend bool operator==(const Range&, const Range&) = default;
  };

  std::string name;
  std::string fallback;             ///< The default, as users write it: "1e-8", "false".
  std::string help;                 ///< One line.
  std::optional<Range> range = {};  ///< Range of a real number. Empty for a flag (true or false; attribute: 1 or 0).
};

/// A tensor PARAMETER.NAME of the optimiser, which is initially zero.
struct OptimizerState {
  std::string name;
  bool may_be_half = true;  ///< Whether float16's range suffices. It does not for means of squared gradients.

  /// Returns the state's shape for a parameter of the given shape, or nothing if such a parameter does not have this
  /// state. If null, the state has the parameter's shape. Other shapes are possible only if the rule does not work on
  /// shards.
  std::optional<Shape> (*shape)(const Shape& parameter) = nullptr;
};

struct Optimizer {
  Operator rule;  ///< The operator (update_rule.h). Its kind is the optimiser's name.
  std::vector<OptimizerState> states = {};
  bool counts_updates = false;  ///< Whether the input after `rate` is the number of the update.
  std::vector<HyperParameter> hyper_parameters = {};

  /// An operator that runs before a rule that needs sums over the full tensor.
  ///
  ///   moments(w, g, state*..., step [, factor])               ->  states, sums i32[2, 42]
  ///   rule(w*, states..., sums, rate, step [, factor])        ->  w
  ///
  /// The sums are two exact sums of squares (square_sum.h). The sums of a tensor's pieces, added elementwise, give the
  /// sums of the full tensor. If the factor is kSkip, `moments` changes nothing.
  std::optional<Operator> moments = {};

  /// An operator that runs before a rule that needs the norms of the weights and the gradient over the full tensor. The
  /// rule then has their sums of squares as the input before the rate. An optimiser has at most one of `moments` and
  /// `norms`.
  ///
  ///   norms(w, g)                                                ->  sums i32[2, 42]
  ///   rule(w*, g, states*..., sums, rate [, step] [, factor])    ->  w, states
  std::optional<Operator> norms = {};

  /// Operators for weights of at least two dimensions, unless they are embedding tables. The graph orthogonalises u
  /// between them (compiler/arithmetic/orthogonalisation.h). Other parameters have `rule`.
  ///
  ///   momentum(w, g, momentum* [, factor])   ->  momentum, u [R,C], of norm 1; 0 if the factor is kSkip
  ///   rule(w*, u, rate [, factor])           ->  w
  struct Orthogonalised {
    Operator momentum;
    Operator rule;
  };
  std::optional<Orthogonalised> orthogonalised = {};

  /// The hyper-parameter that adapts the rate to each tensor, and that is 0 for tensors exempted by training.no-decay,
  /// which use the learning rate unchanged. If empty, training.no-decay changes only the weight decay.
  std::string adaptation = {};

  [[nodiscard]] const std::string& name() const { return rule.kind; }
  [[nodiscard]] const HyperParameter* find(std::string_view hyper_parameter) const;

  /// Returns the states of a parameter of this type, with their types, in the order of the rule's inputs.
  [[nodiscard]] std::vector<std::pair<const OptimizerState*, TensorType>> states_of(const TensorType& parameter) const;
};

const std::vector<Optimizer>& all_optimizers();  ///< Sorted by name.
const Optimizer* find_optimizer(std::string_view name);

}  // namespace poprun
