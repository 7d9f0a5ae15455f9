#include <algorithm>

#include "replica/ops/optimizers/optimizer.h"

namespace poprun {

#define POPRUN_FAMILY(stem)    \
  namespace optimizers::stem { \
  Optimizer optimizer();       \
  }
#include "replica/ops/optimizers/families.inc"
#undef POPRUN_FAMILY

const HyperParameter* Optimizer::find(std::string_view hyper_parameter) const {
  const auto found = std::ranges::find(hyper_parameters, hyper_parameter, &HyperParameter::name);
  return found == hyper_parameters.end() ? nullptr : &*found;
}

std::vector<std::pair<const OptimizerState*, TensorType>> Optimizer::states_of(const TensorType& parameter) const {
  std::vector<std::pair<const OptimizerState*, TensorType>> all;
  for (const OptimizerState& state : states) {
    if (state.shape == nullptr) {
      all.emplace_back(&state, parameter);
    } else if (const auto shape = state.shape(parameter.shape)) {
      all.emplace_back(&state, TensorType{parameter.data, *shape, Layout::kRowMajor});
    }
  }
  return all;
}

const std::vector<Optimizer>& all_optimizers() {
  static const std::vector<Optimizer> all = [] {
    std::vector<Optimizer> optimizers = {
#define POPRUN_FAMILY(stem) optimizers::stem::optimizer(),
#include "replica/ops/optimizers/families.inc"
#undef POPRUN_FAMILY
    };
    std::ranges::sort(optimizers, {}, &Optimizer::name);
    return optimizers;
  }();
  return all;
}

const Optimizer* find_optimizer(std::string_view name) {
  const auto found = std::ranges::find(all_optimizers(), name, &Optimizer::name);
  return found == all_optimizers().end() ? nullptr : &*found;
}

}  // namespace poprun
