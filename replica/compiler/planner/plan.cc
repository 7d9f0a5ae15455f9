#include "replica/compiler/planner/plan.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun::planner {
namespace {

Range blocks_of_part(std::int64_t blocks, std::int64_t parts, std::int64_t index) {
  const std::int64_t each = ceil_div(blocks, parts);
  return {std::min(index * each, blocks), std::min((index + 1) * each, blocks)};
}

/// Returns the channels of a part in a step. The blocks of the step are split into parts.
Range channels(std::int64_t size, std::int64_t block, std::int64_t steps, std::int64_t step, std::int64_t parts,
               std::int64_t part) {
  const std::int64_t step_blocks = ceil_div(size, block) / steps;
  const Range blocks = blocks_of_part(step_blocks, parts, part);
  const std::int64_t first = step * step_blocks;
  return {std::min((first + blocks.begin) * block, size), std::min((first + blocks.end) * block, size)};
}

}  // namespace

Range part_range(std::int64_t size, std::int64_t block, std::int64_t parts, std::int64_t index) {
  return channels(size, block, 1, 0, parts, index);
}

std::int64_t Plan::peak_permille(const Target& target) const {
  const std::int64_t slots = cycles().count() * target.tiles * target.macs_per_cycle;
  return slots == 0 ? 0 : product.useful_macs() * 1000 / slots;
}

std::int64_t Plan::tile_of(const PartIndex& part) const {
  std::int64_t tile = part.group;
  tile = tile * splits.inputs + part.input;
  tile = tile * splits.kernel + part.kernel;
  tile = tile * splits.batch + part.batch;
  tile = tile * splits.rows + part.row;
  tile = tile * splits.columns + part.column;
  return tile * splits.outputs + part.output;
}

PartIndex Plan::part_of(std::int64_t tile) const {
  const auto take = [&tile](std::int64_t parts) {
    const std::int64_t index = tile % parts;
    tile /= parts;
    return index;
  };
  PartIndex part;
  part.output = take(splits.outputs);
  part.column = take(splits.columns);
  part.row = take(splits.rows);
  part.batch = take(splits.batch);
  part.kernel = take(splits.kernel);
  part.input = take(splits.inputs);
  part.group = tile;
  return part;
}

PartRanges Plan::ranges_of(const PartIndex& part, const StepIndex& step) const {
  const Product& p = viewed.product;
  return {
      .groups = part_range(p.groups, vertex.groups, splits.groups, part.group),
      .inputs = channels(p.input_channels, vertex.inputs, splits.serial_inputs, step.input, splits.inputs, part.input),
      .kernel_rows = part_range(p.field[0].kernel, 1, splits.kernel, part.kernel),
      .batch = part_range(p.batch, 1, splits.batch, part.batch),
      .rows = part_range(p.field[0].output, 1, splits.rows, part.row),
      .columns = part_range(p.field[1].output, 1, splits.columns, part.column),
      .outputs =
          channels(p.output_channels, vertex.outputs, splits.serial_outputs, step.output, splits.outputs, part.output)};
}

bool operator==(const Plan& a, const Plan& b) {
  return a.product == b.product && a.viewed.view == b.viewed.view && a.vertex == b.vertex && a.splits == b.splits;
}

std::string to_line(const Plan& plan) {
  const std::string view = plan.viewed.view == View{} ? "" : to_text(plan.viewed.view) + ", ";
  return fmt::format("{}{}, {} = {}, {} cycles, {} B temporary", view, to_text(plan.vertex), to_text(plan.splits),
                     counted(static_cast<std::uint64_t>(plan.splits.tiles()), "tile"), grouped(plan.cycles().count()),
                     grouped(plan.temporary_bytes().count()));
}

std::string to_table(const Plan& plan, const Target& target) {
  std::string text = fmt::format("{}\n{}\n", to_text(plan.product), to_line(plan));
  const auto row = [&text](std::string_view what, std::int64_t amount, std::string_view unit) {
    if (amount > 0) {
      text += fmt::format("  {:<22}{:>14} {}\n", what, grouped(amount), unit);
    }
  };
  const PlanCycles& c = plan.cost.cycles;
  row("compute", c.compute.count(), "cycles");
  row("exchange of input", c.exchange_input.count(), "cycles");
  row("exchange of weights", c.exchange_weights.count(), "cycles");
  row("exchange of sums", c.exchange_partials.count(), "cycles");
  row("copies", c.copy.count(), "cycles");
  row("reduction", c.reduce.count(), "cycles");
  row("slices", c.slice.count(), "cycles");
  row("accumulation", c.accumulate.count(), "cycles");
  const PlanBytes& b = plan.cost.bytes;
  row("input", b.input.count(), "B per tile");
  row("weights", b.weights.count(), "B per tile");
  row("partial sums", b.partials.count(), "B per tile");
  row("vertex", b.vertex.count(), "B per tile");
  row("received sums", b.reduce.count(), "B per tile");
  row("copies", b.copy.count(), "B per tile");
  row("weights of all steps", b.sliced_weights.count(), "B per tile");
  row("sums of steps", b.sum.count(), "B per tile");
  const std::int64_t permille = plan.peak_permille(target);
  return text + fmt::format("  {:<22}{:>12}.{} %\n", "of peak", permille / 10, permille % 10);
}

}  // namespace poprun::planner
