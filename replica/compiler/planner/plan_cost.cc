#include "replica/compiler/planner/plan_cost.h"

#include <algorithm>

/// Costs of serial steps, and of reductions of partial sums in one to three stages (poplibs, lib/poplin/ConvPlan.cpp).
namespace poprun::planner {
namespace {

PlanCycles cycles_of(const ViewedProduct& viewed, const Vertex& vertex, const Target& target, const Load& load) {
  const std::int64_t steps = load.serial_inputs * load.serial_outputs;
  // All steps of outputs read the same inputs, so these are received only once, before the first step.
  const std::int64_t input_steps = load.serial_inputs;
  const Reduction reduction = reduction_cycles(target, load.sums, load.reduction_depth);
  PlanCycles c;
  c.exchange_input = exchange_cycles(target, target.element * load.input_received, load.shares_bus) * input_steps;
  c.exchange_weights = exchange_cycles(target, target.element * load.weight_received, false) * steps;
  c.exchange_partials = reduction.exchange * steps;
  c.compute = vertex_cycles(vertex, viewed.product, target, load.part) * steps;
  c.reduce = reduction.compute * steps;
  c.copy = copy_cycles(target, load.copied_input) + copy_cycles(target, load.copied_weights);
  if (steps > 1) {
    // Rearranging the weights both sends and receives them.
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

/// Returns the smallest integer whose `power`-th power is at least `value`. Requires: value >= 1.
std::int64_t root(std::int64_t value, int power) {
  std::int64_t r = 1;
  const auto reaches = [&] {
    std::int64_t product = 1;
    for (int i = 0; i < power; ++i) {
      product *= r;
    }
    return product >= value;
  };
  while (!reaches()) {
    ++r;
  }
  return r;
}

int stages_for(std::int64_t depth) {
  return depth < 16 ? 1 : depth < 125 ? 2 : 3;
}

/// Returns the cycles of one stage. Each worker adds `depth` rows of its share of the outputs, 16 bytes at a time.
std::int64_t stage_cycles(const Target& target, std::int64_t outputs, std::int64_t depth) {
  const std::int64_t loops = ceil_div(outputs, 16 / target.partial.count());
  return target.workers * (32 + ceil_div(loops, target.workers) * (3 * depth + 7));
}

}  // namespace

Blocks blocks_of(const Product& viewed, const Vertex& vertex) {
  return {.groups = ceil_div(viewed.groups, vertex.groups),
          .inputs = ceil_div(viewed.input_channels, vertex.inputs),
          .outputs = ceil_div(viewed.output_channels, vertex.outputs)};
}

std::int64_t input_range(const FieldDimension& d, std::int64_t outputs, std::int64_t kernel) {
  const std::int64_t places = (outputs - 1) * d.stride + 1 + (kernel - 1) * d.kernel_dilation;
  return std::min(ceil_div(places, d.input_dilation), d.input);
}

Load load_of(const ViewedProduct& viewed, const Vertex& vertex, const Target& target, const Splits& s) {
  const Product& p = viewed.product;
  const Blocks blocks = blocks_of(p, vertex);
  Load load;
  TilePart& part = load.part;
  part.groups = ceil_div(blocks.groups, s.groups) * vertex.groups;
  part.inputs = ceil_div(blocks.inputs / s.serial_inputs, s.inputs) * vertex.inputs;
  part.outputs = ceil_div(blocks.outputs / s.serial_outputs, s.outputs) * vertex.outputs;
  part.batch = ceil_div(p.batch, s.batch);
  part.rows = ceil_div(p.field[0].output, s.rows);
  part.columns = ceil_div(p.field[1].output, s.columns);
  part.kernel_rows = ceil_div(p.field[0].kernel, s.kernel);
  part.kernel_columns = p.field[1].kernel;

  load.input_elements = input_range(p.field[0], part.rows, part.kernel_rows) *
                        input_range(p.field[1], part.columns, part.kernel_columns) * part.batch * part.inputs *
                        part.groups;
  load.weight_elements = part.kernel_rows * part.kernel_columns * part.inputs * part.outputs * part.groups;
  load.sums = part.positions() * part.outputs * part.groups;

  load.input_share = ceil_div(load.input_elements, s.outputs);
  load.input_received = load.input_elements - load.input_elements / s.outputs;
  load.weight_share = ceil_div(load.weight_elements, s.positions());
  load.weight_received = load.weight_elements - load.weight_elements / s.positions();
  load.shares_bus = s.outputs % target.tiles_per_exchange_bus == 0;
  load.reduction_depth = s.reduction_depth();
  load.serial_inputs = s.serial_inputs;
  load.serial_outputs = s.serial_outputs;
  const auto even_share = [&target](std::int64_t elements) {
    return Bytes{ceil_div(elements * target.element.count(), target.tiles)};
  };
  load.copied_input = even_share(viewed.copied_input);
  load.copied_weights = even_share(viewed.copied_weights);
  load.sliced_weights = s.serial() > 1 ? even_share(p.weight_elements()) : Bytes{0};
  return load;
}

Bytes PlanBytes::total() const {
  return sliced_weights + std::max({copy, input + weights + partials + vertex, reduce}) + sum;
}

Cost cost_of(const ViewedProduct& viewed, const Vertex& vertex, const Target& target, const Load& load) {
  return {cycles_of(viewed, vertex, target, load), bytes_of(vertex, target, load)};
}

/// Returns the cycles of a copy: 5/4 of the load time, plus the exchange (poplibs, lib/poplin/ConvPlan.cpp).
Cycles copy_cycles(const Target& target, Bytes bytes) {
  return Cycles{ceil_div(bytes.count() * 5, 4 * target.load_bytes_per_cycle)} + exchange_cycles(target, bytes, false);
}

Cycles exchange_cycles(const Target& target, Bytes bytes, bool shared) {
  const std::int64_t rate = target.exchange_bytes_per_cycle * (shared ? target.tiles_per_exchange_bus : 1);
  return Cycles{ceil_div(bytes.count(), rate)};
}

/// Counts 25 cycles for the supervisor, and 63 + 2 n / vector width for a worker with n elements.
Cycles slice_cycles(const Target& target, std::int64_t elements) {
  const std::int64_t share = ceil_div(elements, target.workers);
  return Cycles{25 + target.workers * (63 + ceil_div(2 * share, target.vector_width))};
}

/// Returns the cycles to add sums: two loads and a store per vector, as in any elementwise operation [I].
Cycles accumulate_cycles(const Target& target, std::int64_t sums) {
  const std::int64_t vectors = ceil_div(ceil_div(sums, target.workers) * target.partial.count(), 8);
  return Cycles{target.workers * (26 + 3 * vectors)};
}

Reduction reduction_cycles(const Target& target, std::int64_t sums, std::int64_t depth) {
  Reduction total;
  // The exchange is charged even without a reduction, because the result is sent to the tiles that hold the output.
  total.exchange = exchange_cycles(target, target.partial * sums, false);
  if (depth == 1) {
    if (target.partial != target.element) {
      const std::int64_t loops = ceil_div(ceil_div(sums, target.workers), target.vector_width);
      total.compute = Cycles{target.workers * (loops + 26)};
    }
    return total;
  }
  // In each stage, a tile adds `fan_in` partial sums of each of its outputs; a later stage has fewer outputs per tile.
  const int stages = stages_for(depth);
  const std::int64_t factor = root(depth, stages);
  std::int64_t left = depth;
  std::int64_t outputs = sums;
  for (int stage = 0; stage < stages; ++stage) {
    const std::int64_t fan_in = stage + 1 == stages ? left : std::min(factor, left);
    outputs = ceil_div(outputs, fan_in);
    total.compute += Cycles{stage_cycles(target, outputs, fan_in)};
    if (stage > 0) {
      total.exchange += exchange_cycles(target, target.partial * (outputs * fan_in), false);
    }
    left = ceil_div(left, fan_in);
  }
  return total;
}

}  // namespace poprun::planner
