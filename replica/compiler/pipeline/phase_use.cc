#include "replica/compiler/pipeline/phase_use.h"

#include <algorithm>
#include <cstddef>
#include <map>
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

std::set<TensorId> used_in_one_phase(const Graph& graph, const std::vector<Place>& phases) {
  std::set<TensorId> all;
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    all.insert(TensorId{t});
  }
  std::map<TensorId, std::set<std::size_t>> regions;  // That name a tensor.
  std::map<TensorId, std::set<std::size_t>> used_in;  // Phases.
  for (std::size_t p = 0; p < phases.size(); ++p) {
    const PhaseUse use = use_in_phase(graph, graph.at(phases[p]), all);
    for (const std::set<TensorId>* tensors : {&use.reads, &use.writes}) {
      for (const TensorId id : *tensors) {
        used_in[id].insert(p);
      }
    }
  }
  for (std::size_t r = 0; !phases.empty() && r < graph.functions[phases[0].function].regions.size();
       ++r) {
    for (const Operation& operation : graph.at({phases[0].function, r}).operations) {
      for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
        for (const TensorId id : *tensors) {
          regions[id].insert(r);
        }
      }
    }
  }
  std::set<TensorId> found;
  for (const auto& [id, at] : used_in) {
    const std::size_t p = *at.begin();
    const bool is_near = std::ranges::all_of(regions[id], [&](std::size_t r) {
      return r + 1 == phases[p].region || r == behind(phases, p).region;
    });
    if (at.size() == 1 && is_near) {
      found.insert(id);
    }
  }
  return found;
}

Place behind(const std::vector<Place>& phases, std::size_t p) {
  return p + 1 < phases.size() ? beside(phases[p + 1], -1) : beside(phases[p], 1);
}

Place beside(Place place, int distance) {
  place.region = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(place.region) + distance);
  return place;
}

}  // namespace poprun
