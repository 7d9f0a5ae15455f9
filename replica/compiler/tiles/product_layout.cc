#include "replica/compiler/tiles/product_layout.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "replica/compiler/planner/plan_cost.h"

namespace poprun {
namespace {

using planner::Plan;
using planner::Splits;

/// The parallel splits, in the order of tiles.
enum class Split : std::uint8_t { kGroups, kInputs, kKernel, kBatch, kRows, kColumns, kOutputs };
constexpr std::size_t kSplits = 7;

struct Parallel {
  std::array<std::int64_t, kSplits> parts;
  std::array<std::int64_t, kSplits> stride;

  explicit Parallel(const Splits& s) : parts{s.groups, s.inputs, s.kernel, s.batch, s.rows, s.columns, s.outputs} {
    std::int64_t tiles = 1;
    for (std::size_t i = kSplits; i-- > 0;) {
      stride[i] = tiles;
      tiles *= parts[i];
    }
  }
};

/// One dimension of a tensor: its extent, the split that divides it, and the number of elements per block.
struct Dimension {
  std::int64_t extent = 1;
  std::optional<Split> split = std::nullopt;
  std::int64_t block = 1;
};

bool is_position(ProductAxis axis) {
  return axis == ProductAxis::kBatch || axis == ProductAxis::kRows || axis == ProductAxis::kColumns;
}

enum class Operand : std::uint8_t { kInput, kWeights, kOutput };

class Layouter {
 public:
  Layouter(const Plan& plan, const OperandAxes& axes) : plan_(plan), axes_(axes), parallel_(plan.splits) {}

  /// Returns the layout of a product in `steps` serial steps, of which `output_steps` split its output channels.
  [[nodiscard]] ProductLayout run(std::int64_t steps, std::int64_t output_steps) const {
    const std::int64_t element = element_bytes(plan_.product.arithmetic).count();
    const bool has_blocks = plan_.vertex.kind != planner::VertexKind::kHmac;
    const std::int64_t block = has_blocks ? plan_.vertex.inputs * plan_.vertex.outputs : 1;
    const std::int64_t weights = std::max(ceil_div(kWeightGrain.count(), element), block) * steps;
    const bool swapped = plan_.viewed.view.swapped;
    ProductLayout layout;
    layout.input = mapping(axes_.input, Operand::kInput, swapped ? weights : 8 / element);
    layout.weights = mapping(axes_.weights, Operand::kWeights, swapped ? 8 / element : weights);
    layout.output = mapping(axes_.output, Operand::kOutput, 64 / element * output_steps);
    return layout;
  }

 private:
  [[nodiscard]] Operand viewed(Operand operand) const {
    if (!plan_.viewed.view.swapped || operand == Operand::kOutput) {
      return operand;
    }
    return operand == Operand::kInput ? Operand::kWeights : Operand::kInput;
  }

  [[nodiscard]] std::int64_t extent(ProductAxis axis, Operand operand) const {
    const Product& p = plan_.product;
    const auto field = [&](const FieldDimension& d) {
      return operand == Operand::kInput ? d.input : operand == Operand::kWeights ? d.kernel : d.output;
    };
    switch (axis) {
      case ProductAxis::kGroups:
        return p.groups;
      case ProductAxis::kBatch:
        return p.batch;
      case ProductAxis::kInputs:
        return p.input_channels;
      case ProductAxis::kOutputs:
        return p.output_channels;
      case ProductAxis::kRows:
        return field(p.field[0]);
      case ProductAxis::kColumns:
        return field(p.field[1]);
    }
    return 1;
  }

  /// Returns an operand's dimension along an axis, with the split of the viewed product that divides it, if any.
  [[nodiscard]] Dimension dimension(ProductAxis axis, Operand operand) const {
    const planner::View& view = plan_.viewed.view;
    Dimension d{extent(axis, operand)};
    if (view.swapped && (axis == ProductAxis::kBatch || axis == ProductAxis::kOutputs)) {
      axis = axis == ProductAxis::kBatch ? ProductAxis::kOutputs : ProductAxis::kBatch;
    }
    const Operand role = viewed(operand);
    const bool expanded = view.expanded[0] || view.expanded[1];
    if (view.flattened && is_position(axis)) {
      return d;  // The axes of a position can only be split jointly.
    }
    switch (axis) {
      case ProductAxis::kGroups:
        d.split = Split::kGroups;
        d.block = plan_.vertex.groups * view.combined_groups;
        break;
      case ProductAxis::kBatch:
        d.split = Split::kBatch;
        break;
      case ProductAxis::kInputs:
        if (!expanded) {
          d.split = Split::kInputs;
          d.block = plan_.vertex.inputs;
        }
        break;
      case ProductAxis::kOutputs:
        d.split = Split::kOutputs;
        d.block = plan_.vertex.outputs;
        break;
      case ProductAxis::kRows:
        if (role == Operand::kWeights) {
          d.split = view.expanded[0] ? std::nullopt : std::optional(Split::kKernel);
        } else {
          d.split = Split::kRows;
        }
        break;
      case ProductAxis::kColumns:
        if (role != Operand::kWeights) {
          d.split = Split::kColumns;
        }
        break;
    }
    return d;
  }

  [[nodiscard]] std::vector<Dimension> dimensions(const std::vector<ProductAxis>& axes, Operand operand) const {
    constexpr std::array kPositions = {ProductAxis::kBatch, ProductAxis::kRows, ProductAxis::kColumns};
    std::vector<Dimension> all;
    for (auto axis = axes.begin(); axis != axes.end(); ++axis) {
      const bool joined = plan_.viewed.view.flattened && axes.end() - axis >= 3 &&
                          std::equal(kPositions.begin(), kPositions.end(), axis);
      if (joined) {
        all.push_back({plan_.viewed.product.batch, Split::kBatch});
        axis += 2;
      } else {
        all.push_back(dimension(*axis, operand));
      }
    }
    return all;
  }

  [[nodiscard]] Mapping mapping(const std::vector<ProductAxis>& axes, Operand operand, std::int64_t grain) const {
    Mapping mapping;
    std::array<bool, kSplits> used = {};
    for (const Dimension& d : dimensions(axes, operand)) {
      GridAxis axis{d.extent, d.extent, 0};
      if (d.split) {
        const auto split = static_cast<std::size_t>(*d.split);
        const std::int64_t part = ceil_div(ceil_div(d.extent, d.block), parallel_.parts[split]) * d.block;
        axis = {d.extent, std::min(d.extent, part), parallel_.stride[split]};
        used[split] = true;
      }
      mapping.axes.push_back(axis);
    }
    for (std::size_t split = 0; split < kSplits; ++split) {
      if (!used[split] && parallel_.parts[split] > 1) {
        mapping.shares.push_back({parallel_.parts[split], parallel_.stride[split]});
      }
    }
    mapping.grain = std::max<std::int64_t>(1, grain);
    return mapping;
  }

  const Plan& plan_;
  const OperandAxes& axes_;
  Parallel parallel_;
};

/// Returns the number of elements on the fullest tile. Requires: boxes are on different tiles.
std::int64_t most_on_a_tile(const Mapping& mapping) {
  std::int64_t box = 1;
  for (const GridAxis& axis : mapping.axes) {
    box *= axis.part;
  }
  std::int64_t tiles = 1;
  for (const Share& share : mapping.shares) {
    tiles *= share.tiles;
  }
  return std::min(box, ceil_div(ceil_div(box, mapping.grain), tiles) * mapping.grain);
}

}  // namespace

ProductLayout layout_of(const Plan& plan, const OperandAxes& axes) {
  return Layouter(plan, axes).run(plan.splits.serial(), plan.splits.serial_outputs);
}

Bytes crowding_of(const Plan& plan) {
  if (plan.splits.serial() == 1) {
    return {};
  }
  using enum ProductAxis;
  static const OperandAxes kAxes{{kGroups, kInputs, kBatch, kRows, kColumns},
                                 {kGroups, kInputs, kOutputs, kRows, kColumns},
                                 {kGroups, kOutputs, kBatch, kRows, kColumns}};
  const Layouter layouter(plan, kAxes);
  const ProductLayout stepped = layouter.run(plan.splits.serial(), plan.splits.serial_outputs);
  const ProductLayout at_once = layouter.run(1, 1);
  std::int64_t most = 0;
  for (Mapping ProductLayout::*operand : {&ProductLayout::input, &ProductLayout::weights, &ProductLayout::output}) {
    most = std::max(most, most_on_a_tile(stepped.*operand) - most_on_a_tile(at_once.*operand));
  }
  return element_bytes(plan.product.arithmetic) * most;
}

TileOperands operands_on(const Plan& plan, std::int64_t tile) {
  const planner::PartRanges ranges = plan.ranges_of(plan.part_of(tile), {});
  const Product& p = plan.viewed.product;
  const auto blocks = [](const planner::Range& range, std::int64_t block) {
    return ceil_div(range.size(), block) * block;
  };
  const std::int64_t groups = blocks(ranges.groups, plan.vertex.groups);
  const std::int64_t inputs = blocks(ranges.inputs, plan.vertex.inputs);
  const std::int64_t outputs = blocks(ranges.outputs, plan.vertex.outputs);
  const std::int64_t kernel = ranges.kernel_rows.size() * p.field[1].kernel;
  const std::int64_t positions = ranges.batch.size() * ranges.rows.size() * ranges.columns.size();
  if (groups * inputs * outputs * kernel * positions == 0) {
    return {};
  }
  const std::int64_t element = element_bytes(p.arithmetic).count();
  return {.input = planner::input_range(p.field[0], ranges.rows.size(), ranges.kernel_rows.size()) *
                   planner::input_range(p.field[1], ranges.columns.size(), p.field[1].kernel) * ranges.batch.size() *
                   inputs * groups * element,
          .weights = kernel * inputs * outputs * groups * element,
          .partials = positions * outputs * groups * partial_bytes(p.arithmetic).count()};
}

}  // namespace poprun
