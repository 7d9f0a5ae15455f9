#pragma once

#include <cstdint>
#include <vector>

#include "replica/compiler/planner/splits.h"
#include "replica/compiler/planner/target.h"
#include "replica/compiler/planner/vertices/vertex.h"
#include "replica/compiler/planner/view.h"

namespace poprun::planner {

/// What the busiest tile of a plan holds and computes in one serial step (ipu.md 2.4): the facts
/// that costs are made of. Costs never fall if a number grows, so the smallest numbers that a set
/// of plans has give a lower bound of their costs.
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

  /// What a tile rearranges before the first step, where all tiles of the device share the work:
  /// operands that the view copies, and with serial steps the weights.
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

/// Input elements of one dimension that `outputs` neighbouring outputs and `kernel` neighbouring
/// kernel elements read: ((outputs - 1) * stride + 1 + (kernel - 1) * kernel_dilation) /
/// input_dilation, not more than there are.
std::int64_t input_range(const FieldDimension& dimension, std::int64_t outputs,
                         std::int64_t kernel);

/// Requires: no split is larger than its dimension, and serial splits divide the blocks of
/// channels.
Load load_of(const ViewedProduct& viewed, const Vertex& vertex, const Target& target,
             const Splits& splits);

}  // namespace poprun::planner
