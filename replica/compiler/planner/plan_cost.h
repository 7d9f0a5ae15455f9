#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string_view>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/planner/vertex.h"
#include "replica/compiler/planner/view.h"

/// The cost of a plan on the busiest tile (after poplibs, lib/poplin/ConvPlan.cpp).
namespace poprun::planner {

/// Memory and work of a plan's busiest tile in one serial step (after poplibs, lib/poplin/ConvPlan.cpp): the facts that
/// costs are made of. Costs never fall if a number grows, so the smallest numbers that a set of plans has give a lower
/// bound of their costs.
struct Load {
  TilePart part;
  std::int64_t input_elements = 0;   ///< That the part reads.
  std::int64_t weight_elements = 0;  ///< That the part reads.
  std::int64_t sums = 0;             ///< Partial sums of the part.

  /// Tiles that read the same elements own equal shares of them and receive the rest.
  std::int64_t input_share = 0;
  std::int64_t input_received = 0;
  std::int64_t weight_share = 0;
  std::int64_t weight_received = 0;
  bool shares_bus = false;  ///< Both tiles of an exchange bus read the same inputs.

  std::int64_t reduction_depth = 1;  ///< Tiles that hold parts of the same sums.
  std::int64_t serial_inputs = 1;
  std::int64_t serial_outputs = 1;

  /// Bytes that a tile rearranges before the first step, if all tiles of the device share the work: operands that the
  /// view copies, and with serial steps the weights.
  Bytes copied_input;
  Bytes copied_weights;
  Bytes sliced_weights;
};

/// Sizes of a viewed product in the blocks of a vertex.
struct Blocks {
  std::int64_t groups = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
};
Blocks blocks_of(const Product& viewed, const Vertex& vertex);

/// Input elements of one dimension that `outputs` neighbouring outputs and `kernel` neighbouring kernel elements read:
/// ((outputs - 1) * stride + 1 + (kernel - 1) * kernel_dilation) / input_dilation, not more than there are.
std::int64_t input_range(const FieldDimension& dimension, std::int64_t outputs, std::int64_t kernel);

/// Requires: no split is larger than its dimension, and serial splits divide the blocks of channels.
Load load_of(const ViewedProduct& viewed, const Vertex& vertex, const Target& target, const Splits& splits);

/// Cycles of all serial steps together, by what the chip does.
struct PlanCycles {
  Cycles exchange_input;
  Cycles exchange_weights;
  Cycles exchange_partials;  ///< To the tiles that add them, or to where the output lies.
  Cycles copy;               ///< Rearranging operands before the first step.
  Cycles compute;            ///< The vertex.
  Cycles reduce;             ///< Adding partial sums of different tiles; casting the result.
  Cycles slice;              ///< Taking a step's operands out of the whole, and putting results in.
  Cycles accumulate;         ///< Adding a step's sums to those of the steps before.

  [[nodiscard]] Cycles exchange() const { return exchange_input + exchange_weights + exchange_partials; }
  [[nodiscard]] Cycles total() const { return exchange() + copy + compute + reduce + slice + accumulate; }

  friend bool operator==(const PlanCycles&, const PlanCycles&) = default;
};

/// Temporary bytes by what they hold. Not all live at once: total() says how many do.
struct PlanBytes {
  Bytes input;           ///< A step's inputs.
  Bytes weights;         ///< A step's weights.
  Bytes partials;        ///< A step's partial sums.
  Bytes vertex;          ///< What the vertex needs besides.
  Bytes reduce;          ///< Partial sums received from other tiles.
  Bytes copy;            ///< Operands that the view copies, before and after.
  Bytes sliced_weights;  ///< Weights that steps are sliced from, before and after rearranging them.
  Bytes sum;             ///< The sums of the steps of inputs so far.

  [[nodiscard]] Bytes total() const;

  friend bool operator==(const PlanBytes&, const PlanBytes&) = default;
};

struct Cost {
  PlanCycles cycles;
  PlanBytes bytes;

  friend bool operator==(const Cost&, const Cost&) = default;
};

/// The cost of a load. Both totals never fall if a number of the load grows.
Cost cost_of(const ViewedProduct& viewed, const Vertex& vertex, const Target& target, const Load& load);

/// Its pieces, one file each.
///
/// exchange.cc: cycles to receive `bytes`; `shared`: the two tiles of a bus receive the same.
Cycles exchange_cycles(const Target& target, Bytes bytes, bool shared);

/// reduce.cc: adding `depth` partial sums of each of `sums` outputs of a tile, over depth tiles.
struct Reduction {
  Cycles exchange;
  Cycles compute;
};
Reduction reduction_cycles(const Target& target, std::int64_t sums, std::int64_t depth);

/// copy.cc: rearranging `bytes` of an operand for a view.
Cycles copy_cycles(const Target& target, Bytes bytes);

/// serial.cc: slicing `elements` out of a tile's share of a tensor, or updating them in it.
Cycles slice_cycles(const Target& target, std::int64_t elements);
/// serial.cc: adding `sums` to others in place.
Cycles accumulate_cycles(const Target& target, std::int64_t sums);

}  // namespace poprun::planner
