#pragma once

#include <cstdint>
#include <string>

#include "replica/compiler/planner/plan_cost.h"
#include "replica/compiler/planner/vertex.h"
#include "replica/compiler/planner/view.h"

/// How one product is spread over the tiles of an IPU, and where its operands lie.
namespace poprun::planner {

/// From `begin` to before `end`.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }
  friend bool operator==(Range, Range) = default;
};

/// One part's place in each parallel split, each below the split's number.
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

/// One serial step's place in the serial splits.
struct StepIndex {
  std::int64_t input = 0;
  std::int64_t output = 0;
};

/// The range of the viewed product that a part covers in a step, without padding of channels. The part multiplies each
/// input of its range with each weight of its range, as far as they meet; ranges of different (part, step) never share
/// a product of the same indices, and none is left out.
struct PartRanges {
  Range groups;
  Range inputs;       ///< Channels of a group.
  Range kernel_rows;  ///< Columns of the kernel are never cut.
  Range batch;
  Range rows;     ///< The output's.
  Range columns;  ///< The output's.
  Range outputs;  ///< Channels of a group.
};

/// A value. Everything is about `viewed.product`, which is the operation's product with the view `as given`.
/// compiler/mapping/product_layout.h says where the operands lie.
struct Plan {
  Product product;  ///< As the operation has it.
  ViewedProduct viewed;
  Vertex vertex;
  Splits splits;
  Cost cost;

  [[nodiscard]] Cycles cycles() const { return cost.cycles.total(); }
  [[nodiscard]] Bytes temporary_bytes() const { return cost.bytes.total(); }

  /// Work besides the product itself if it is computed in steps, as plan_cost.h counts its cycles: rearranging the
  /// weights and slicing them; for steps of inputs slicing these and adding to the sums so far, for steps of outputs
  /// putting the result into the whole.
  [[nodiscard]] std::int64_t parts_of_loop() const {
    return splits.serial() == 1 ? 0 : 2 + (splits.serial_inputs > 1 ? 2 : 0) + (splits.serial_outputs > 1 ? 1 : 0);
  }

  /// Share of the peak of the whole device, useful multiplications only, in thousandths.
  [[nodiscard]] std::int64_t peak_permille(const Target& target) const;

  /// The tile of a part: mixed-radix, the group outermost and the output channels innermost
  /// (poplibs, lib/poplin/ConvPlan.cpp). 0 .. splits.tiles() - 1, each once.
  [[nodiscard]] std::int64_t tile_of(const PartIndex& part) const;

  /// The part of a tile. Requires tile < splits.tiles().
  [[nodiscard]] PartIndex part_of(std::int64_t tile) const;

  /// Requires: each index below its split. Ranges are never empty.
  [[nodiscard]] PartRanges ranges_of(const PartIndex& part, const StepIndex& step) const;
};

/// The same plan of the same product. (Costs follow from the rest.)
bool operator==(const Plan& a, const Plan& b);

/// The range of part `index` of `size` things in blocks of `block`, cut into `parts` equal numbers of blocks, the last
/// one smaller.
Range part_range(std::int64_t size, std::int64_t block, std::int64_t parts, std::int64_t index);

/// `AMP 16x16, batch 4 x outputs 2 = 8 tiles, 12,345 cycles, 45,678 B temporary`, with the view before the vertex
/// unless it is the plain one.
std::string to_line(const Plan& plan);

/// The product, the plan, and its cycles and bytes by what they are for, one a line.
std::string to_table(const Plan& plan, const Target& target);

}  // namespace poprun::planner
