#include "replica/compiler/stages/weights.h"

#include <set>
#include <utility>

#include "replica/compiler/cost/cost.h"
#include "replica/compiler/mapping/plans.h"
#include "replica/device/product.h"
#include "replica/ops/face/operator.h"

namespace poprun {
namespace {

Arithmetic arithmetic_of(const LayerUse& use) {
  return !use.half           ? Arithmetic::kF32
         : use.half_partials ? Arithmetic::kF16PartialsF16
                             : Arithmetic::kF16;
}

Cycles planned_cycles(const Product& product, const LayerUse& use) {
  const planner::Plan& plan = *plan_product(product, use.permille, use.device).plan;
  const Bytes input = element_bytes(product.arithmetic) * product.input_elements();
  return time_of_plan(use.device, plan, input).total();
}

Cycles product_cycles(Product product, bool has_input_gradient, const LayerUse& use) {
  product.arithmetic = arithmetic_of(use);
  Cycles cycles = planned_cycles(product, use);
  if (use.training) {
    cycles += planned_cycles(weight_gradient(product), use);
    cycles += has_input_gradient ? planned_cycles(input_gradient(product), use) : Cycles{0};
  }
  return cycles;
}

/// One micro-batch: forward, and in training backward.
Cycles cycles_of(const Graph& graph, const Operation& operation, const LayerUse& use) {
  const Operator* op = find_operator(operation.kind);
  if (op == nullptr) {
    return Cycles{0};
  }
  const Signature signature = signature_of(graph, operation);
  if (op->product != nullptr) {
    const bool from_host = graph.tensor(operation.inputs[0]).role == Role::kStream;
    return product_cycles(op->product(signature), !from_host, use);
  }
  Work work = op->work(signature);
  work.arithmetic = arithmetic_of(use);
  if (use.half) {
    work.memory_traffic = Bytes{work.memory_traffic.count() / 2};
    work.exchanged = Bytes{work.exchanged.count() / 2};
  }
  return time_of_work(use.device, work).total() * (use.training ? 3 : 1);
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
    weight.cycles += cycles_of(graph, operation, use);
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
