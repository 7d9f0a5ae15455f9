#include "replica/compiler/stages/weights.h"

#include <set>
#include <utility>

#include "replica/ops/operator.h"

namespace poprun {
namespace {

Cycles forward_cycles(const Graph& graph, const Operation& operation, const LayerUse& use) {
  const Operator* op = find_operator(operation.kind);
  if (op == nullptr) {
    return Cycles{0};
  }
  Work work = op->work(signature_of(graph, operation));
  if (use.half) {
    work.arithmetic = use.half_partials ? Arithmetic::kF16PartialsF16 : Arithmetic::kF16;
    work.memory_traffic = Bytes{work.memory_traffic.count() / 2};
    work.exchanged = Bytes{work.exchanged.count() / 2};
  }
  return time_of_work(use.device, work).total();
}

}  // namespace

std::vector<LayerWeight> layer_weights(const ForwardPass& forward, const LayerUse& use) {
  const Graph& graph = forward.graph;
  std::vector<LayerWeight> weights(graph.layers.size());
  std::set<std::pair<std::int32_t, TensorId>> used;
  std::set<TensorId> owned;
  for (const Operation& operation : forward.operations()) {
    const std::int32_t layer = operation.origin.layer;
    if (layer == kNoLayer) {
      continue;
    }
    LayerWeight& weight = weights[static_cast<std::size_t>(layer)];
    weight.cycles += forward_cycles(graph, operation, use) * (use.training ? 3 : 1);
    for (const TensorId id : operation.outputs) {
      weight.activations += Bytes{graph.tensor(id).type.elements() * (use.half ? 2 : 4)};
    }
    for (const TensorId id : operation.inputs) {
      if (graph.tensor(id).role != Role::kParameter || !used.emplace(layer, id).second) {
        continue;
      }
      const std::int64_t states = use.training && owned.insert(id).second ? use.states : 0;
      const std::int64_t bytes = (use.half ? 2 : 4) * (use.training ? 2 : 1) + 4 * states;
      weight.bytes += Bytes{graph.tensor(id).type.elements() * bytes};
    }
  }
  return weights;
}

}  // namespace poprun
