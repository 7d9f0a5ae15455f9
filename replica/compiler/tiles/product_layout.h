#pragma once

#include "replica/compiler/planner/plan.h"
#include "replica/device/product.h"
#include "replica/program/mapping.h"

namespace poprun {

/// How the operands of a product lie, elements in the order of the tensors' memory.
struct ProductLayout {
  Mapping input;
  Mapping weights;
  Mapping output;
};

/// Where a plan's tiles read and write. An operand is cut as its dimensions are; the tiles that use the same part own
/// equal shares of it, in grains of the bytes below. Where the order of a tensor's elements does not allow a cut, or
/// the plan works on copies (im2col), the tiles share a larger part instead.
///
///     input     8 B, what a tile loads at once
///     weights   kWeightGrain or a block of AMP and SLIC, whichever is more, times the serial
///               steps of the plan: every step's weights are shared anew, so the first tiles get
///               the rest of each
///     output    64 B, times the serial steps
///
/// The grains are what reproduces the out-of-memory cells of Graphcore's table 2.1, where heavily serialised plans
/// crowd operands on few tiles (section 1.2); Poplar's are not published.
ProductLayout layout_of(const planner::Plan& plan, const OperandAxes& axes);

inline constexpr Bytes kWeightGrain{128};

/// Extra bytes on the fullest tile because the plan runs in several steps, for the operand that has most of them; 0 if
/// there is one step. Each step's operand is divided anew, and the first tiles get the remainder of each: with
/// thousands of steps a few tiles would hold everything.
Bytes crowding_of(const planner::Plan& plan);

/// Poplar accepts crowding: it is why the smallest proportions run out of memory (Graphcore's note on the available
/// memory proportion, section 2.1), where no operand has more than this. Plans with more are for jobs that never fit.
constexpr Bytes most_crowding(Bytes bytes_per_tile) {
  return Bytes{bytes_per_tile.count() / 16};
}

/// Memory of a plan on one tile in its first serial step, the largest; in bytes, with channels filled up to blocks.
struct TileOperands {
  std::int64_t input = 0;
  std::int64_t weights = 0;
  std::int64_t partials = 0;
};

/// Requires: tile < plan.splits.tiles(). All 0 if the tile has nothing to do.
TileOperands operands_on(const planner::Plan& plan, std::int64_t tile);

}  // namespace poprun
