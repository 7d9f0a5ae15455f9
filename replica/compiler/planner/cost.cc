#include "replica/compiler/planner/cost.h"

#include <algorithm>

namespace poprun::planner {
namespace {

PlanCycles cycles_of(const ViewedProduct& viewed, const Vertex& vertex, const Target& target,
                     const Load& load) {
  const std::int64_t steps = load.serial_inputs * load.serial_outputs;
  // Steps of outputs read the same inputs, which are received before the first one.
  const std::int64_t input_steps = load.serial_inputs;
  const Reduction reduction = reduction_cycles(target, load.sums, load.reduction_depth);
  PlanCycles c;
  c.exchange_input =
      exchange_cycles(target, target.element * load.input_received, load.shares_bus) * input_steps;
  c.exchange_weights =
      exchange_cycles(target, target.element * load.weight_received, false) * steps;
  c.exchange_partials = reduction.exchange * steps;
  c.compute = vertex_cycles(vertex, viewed.product, target, load.part) * steps;
  c.reduce = reduction.compute * steps;
  c.copy = copy_cycles(target, load.copied_input) + copy_cycles(target, load.copied_weights);
  if (steps > 1) {
    // The rearranged weights are sent and received.
    c.copy += exchange_cycles(target, load.sliced_weights * 2, false);
    c.slice = slice_cycles(target, load.weight_share) * steps;
  }
  const std::int64_t sums_share = ceil_div(load.sums, load.reduction_depth);
  if (load.serial_inputs > 1) {
    c.slice += slice_cycles(target, load.input_share) * steps;
    c.accumulate = accumulate_cycles(target, sums_share) * steps;
  }
  if (load.serial_outputs > 1) {
    c.slice += slice_cycles(target, sums_share) * steps;
  }
  return c;
}

PlanBytes bytes_of(const Vertex& vertex, const Target& target, const Load& load) {
  PlanBytes b;
  b.input = target.element * load.input_elements;
  b.weights = target.element * load.weight_elements;
  b.partials = target.partial * load.sums;
  if (vertex.kind == VertexKind::kSlic) {
    b.vertex = Bytes{b.partials.count() / load.part.groups + 200};
  }
  if (load.reduction_depth > 1) {
    b.reduce = target.partial * load.sums;
  }
  b.copy = std::max(load.copied_input, load.copied_weights) * 2;
  b.sliced_weights = load.sliced_weights * 2;
  if (load.serial_inputs > 1) {
    b.sum = target.partial * load.sums;
  }
  return b;
}

}  // namespace

Bytes PlanBytes::total() const {
  return sliced_weights + std::max({copy, input + weights + partials + vertex, reduce}) + sum;
}

Cost cost_of(const ViewedProduct& viewed, const Vertex& vertex, const Target& target,
             const Load& load) {
  return {cycles_of(viewed, vertex, target, load), bytes_of(vertex, target, load)};
}

}  // namespace poprun::planner
