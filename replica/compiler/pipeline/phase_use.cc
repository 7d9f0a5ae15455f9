#include "replica/compiler/pipeline/phase_use.h"

#include <cstddef>
#include <optional>

namespace poprun {
namespace {

void add_use(const Graph& graph, const Operation& operation, const std::set<TensorId>& variables,
             PhaseUse& use) {
  for (const TensorId id : operation.inputs) {
    if (variables.contains(id) && !use.writes.contains(id)) {
      use.reads.insert(id);
    }
  }
  for (const TensorId id : operation.outputs) {
    use.ipu = graph.tensor(id).ipu;
    if (variables.contains(id)) {
      use.writes.insert(id);
    }
  }
}

}  // namespace

PhaseUse use_in_phase(const Graph& graph, const Region& phase,
                      const std::set<TensorId>& variables) {
  PhaseUse use;
  for (const Operation& operation : phase.operations) {
    const std::optional<Call> call = Call::from(operation);
    if (!call) {
      continue;
    }
    use.functions.insert(call->function);
    for (const Region& region : find_function(graph, call->function)->regions) {
      for (const Operation& inner : region.operations) {
        add_use(graph, inner, variables, use);
      }
    }
  }
  return use;
}

Place beside(Place place, int distance) {
  place.region = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(place.region) + distance);
  return place;
}

}  // namespace poprun
