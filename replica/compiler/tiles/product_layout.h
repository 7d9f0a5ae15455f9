#pragma once

#include "replica/compiler/planner/plan.h"
#include "replica/device/product.h"
#include "replica/program/mapping.h"

namespace poprun {

/// The mapping of a product's operands to tiles. Elements are in memory order.
struct ProductLayout {
  Mapping input;
  Mapping weights;
  Mapping output;
};

/// Returns the mappings with which a plan's tiles read and write. An operand is split as its dimensions are; the tiles
/// that use the same part own equal shares of it, in grains of the following sizes. If the order of a tensor's elements
/// does not allow a split, or the plan works on copies (im2col), the tiles share a larger part instead.
///
///     input     8 B, the width of a load
///     weights   kWeightGrain or a block of AMP or SLIC, whichever is larger, times the serial steps
///               of the plan: each step's weights are shared separately, so the first tiles get
///               the remainder of each
///     output    64 B, times the number of serial steps that split the output channels
///
/// The grains are chosen to reproduce the out-of-memory cells of Graphcore's table 2.1, where heavily serialised plans
/// crowd operands onto few tiles (section 1.2); Poplar's own grains are not published.
ProductLayout layout_of(const planner::Plan& plan, const OperandAxes& axes);

inline constexpr Bytes kWeightGrain{128};

/// Returns how many extra bytes of one operand the fullest tile holds because there are several serial steps; the
/// maximum over the operands. Each step's slice of an operand is divided separately, with its remainder on the first
/// tiles. With thousands of steps, a few tiles would hold everything.
Bytes crowding_of(const planner::Plan& plan);

/// Returns the largest crowding that our plans may cause. Poplar does not limit crowding, which is why jobs with the
/// smallest proportions run out of memory in Graphcore's note on the available memory proportion (section 2.1). In the
/// jobs that fit there, no operand exceeds this limit.
constexpr Bytes most_crowding(Bytes bytes_per_tile) {
  return Bytes{bytes_per_tile.count() / 16};
}

/// Bytes of a plan on one tile in its first serial step, which is the largest, with channels padded to blocks.
struct TileOperands {
  std::int64_t input = 0;
  std::int64_t weights = 0;
  std::int64_t partials = 0;
};

/// Returns a plan's bytes on a tile, all 0 if the tile has nothing to do. Requires: tile < plan.splits.tiles().
TileOperands operands_on(const planner::Plan& plan, std::int64_t tile);

}  // namespace poprun
