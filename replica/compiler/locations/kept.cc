#include "replica/compiler/locations/kept.h"

#include <string_view>

#include "replica/machine/operations.h"

namespace poprun {
namespace {

constexpr std::string_view kAccumulate = "accumulate";

}  // namespace

std::map<TensorId, Kept> kept_tensors(const Graph& graph) {
  std::map<TensorId, Kept> kept;
  for (const Function& function : graph.functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        if (operation.kind == kAccumulate) {
          kept[operation.outputs[0]] = Kept::kAccumulator;
        } else if (Stash::is(operation)) {
          kept[operation.outputs[0]] = Kept::kActivation;
        }
      }
    }
  }
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    const Role role = graph.tensors()[t].role;
    if (role == Role::kParameter) {
      kept[TensorId{t}] = Kept::kWeight;
    } else if (role == Role::kOptimizerState) {
      kept[TensorId{t}] = Kept::kOptimizerState;
    }
  }
  std::erase_if(kept, [&graph](const auto& one) {
    return graph.tensor(one.first).residence || graph.tensor(one.first).is_remote();
  });
  return kept;
}

}  // namespace poprun
