#pragma once

#include <cstdint>
#include <string>

#include "replica/compiler/planner/plan_cost.h"
#include "replica/compiler/planner/vertex.h"
#include "replica/compiler/planner/view.h"

/// Plans: how a product is spread over the tiles of an IPU, and how its operands are mapped to them.
namespace poprun::planner {

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }
  friend bool operator==(Range, Range) = default;
};

struct PartIndex {
  std::int64_t group = 0;
  std::int64_t input = 0;
  std::int64_t kernel = 0;
  std::int64_t batch = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t output = 0;

  friend bool operator==(const PartIndex&, const PartIndex&) = default;
};

struct StepIndex {
  std::int64_t input = 0;
  std::int64_t output = 0;
};

/// The ranges of the viewed product that a part covers in a step, without padding of channels. The part multiplies its
/// inputs by the weights that they meet. Every such pair of an input and a weight belongs to exactly one part and step.
struct PartRanges {
  Range groups;
  Range inputs;       ///< Input channels within a group.
  Range kernel_rows;  ///< Rows of the kernel; its columns are never split.
  Range batch;
  Range rows;     ///< Rows of the output.
  Range columns;  ///< Columns of the output.
  Range outputs;  ///< Output channels within a group.
};

/// The plan of one product. All numbers refer to `viewed.product`, which is the operation's own product if the view is
/// `as given`. compiler/tiles/product_layout.h maps the operands to tiles.
struct Plan {
  Product product;  ///< The operation's own product.
  ViewedProduct viewed;
  Vertex vertex;
  Splits splits;
  Cost cost;

  [[nodiscard]] Cycles cycles() const { return cost.cycles.total(); }
  [[nodiscard]] Bytes temporary_bytes() const { return cost.bytes.total(); }

  /// Returns the number of kinds of work that serial steps add, as in plan_cost.h: rearranging and slicing weights; for
  /// steps of inputs, also slicing inputs and adding to sums; for steps of outputs, also writing the results.
  [[nodiscard]] std::int64_t parts_of_loop() const {
    return splits.serial() == 1 ? 0 : 2 + (splits.serial_inputs > 1 ? 2 : 0) + (splits.serial_outputs > 1 ? 1 : 0);
  }

  /// Returns the share of the device's peak rate that useful multiplications reach, in thousandths.
  [[nodiscard]] std::int64_t peak_permille(const Target& target) const;

  /// Returns the tile of a part, from 0 to splits.tiles() - 1: a mixed-radix number, with groups outermost and output
  /// channels innermost (poplibs, lib/poplin/ConvPlan.cpp). Each tile has one part.
  [[nodiscard]] std::int64_t tile_of(const PartIndex& part) const;

  /// Returns the part of a tile. Requires: tile < splits.tiles().
  [[nodiscard]] PartIndex part_of(std::int64_t tile) const;

  /// Returns a part's ranges in a step, none of them empty. Requires: each index is below its split.
  [[nodiscard]] PartRanges ranges_of(const PartIndex& part, const StepIndex& step) const;
};

/// Compares all but the costs, which follow from the rest.
bool operator==(const Plan& a, const Plan& b);

/// Returns the range of part `index` when `size` elements are divided into `parts` parts with the same number
/// of blocks each. The last part may be smaller.
Range part_range(std::int64_t size, std::int64_t block, std::int64_t parts, std::int64_t index);

/// Formats a plan as `AMP 16x16, batch 4 x outputs 2 = 8 tiles, 12,345 cycles, 45,678 B temporary`, preceded by the
/// view unless that is the plain one.
std::string to_line(const Plan& plan);

/// Formats the product, the plan, and its cycles and bytes for each purpose, one per line.
std::string to_table(const Plan& plan, const Target& target);

}  // namespace poprun::planner
