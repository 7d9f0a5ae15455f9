#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/ops/operator.h"

/// Optimisers. One file of this folder is one: what may be set, what state lies beside a parameter,
/// and the operator that updates it. The compiler, the options and their help read this list.
///
/// Nothing here needs oneDNN, so that the launcher may have the list.
namespace poprun {

/// What may be set of an optimiser: in train.cfg it is training.NAME, in the operator the attribute
/// NAME. Optimisers that share a name mean one thing by it, with one range; each has its own
/// default.
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
  std::optional<Range> range = {};  ///< Of a real; nothing: true or false, an attribute 1 or 0.
};

struct Optimizer {
  Operator rule;  ///< As update_rule.h says; its kind is the optimiser's name.
  std::vector<std::string> states = {};  ///< PARAMETER.STATE each, zero before the first step.
  bool counts_updates = false;  ///< The rule takes the number of the update behind the rate.
  std::vector<HyperParameter> hyper_parameters = {};

  [[nodiscard]] const std::string& name() const { return rule.kind; }

  /// The hyper-parameter of that name, or null.
  [[nodiscard]] const HyperParameter* find(std::string_view hyper_parameter) const;
};

/// Every optimiser there is, sorted by name.
const std::vector<Optimizer>& all_optimizers();

/// The optimiser of that name, or null.
const Optimizer* find_optimizer(std::string_view name);

}  // namespace poprun
