#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string_view>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/planner/vertex.h"
#include "replica/compiler/planner/view.h"

/// Cost model of plans, for the busiest tile (after poplibs, lib/poplin/ConvPlan.cpp).
namespace poprun::planner {

/// Memory and work of a plan's busiest tile in one serial step: the numbers from which costs are computed. Costs are
/// monotonic in each number, so the minimum of each over a set of plans gives a lower bound on their costs.
struct Load {
  TilePart part;
  std::int64_t input_elements = 0;   ///< Input elements that the part reads.
  std::int64_t weight_elements = 0;  ///< Weights that the part reads.
  std::int64_t sums = 0;             ///< Partial sums of the part.

  /// Tiles that read the same elements own equal shares of them and receive the rest.
  std::int64_t input_share = 0;
  std::int64_t input_received = 0;
  std::int64_t weight_share = 0;
  std::int64_t weight_received = 0;
  bool shares_bus = false;  ///< Both tiles of an exchange bus read the same inputs.

  std::int64_t reduction_depth = 1;  ///< Number of tiles that hold partial sums of the same outputs.
  std::int64_t serial_inputs = 1;
  std::int64_t serial_outputs = 1;

  /// A tile's share of the bytes rearranged before the first step: copied operands and, with serial steps, weights.
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

/// Returns how many inputs, in one dimension, are read by `outputs` adjacent outputs through `kernel` adjacent kernel
/// elements: ((outputs - 1) * stride + 1 + (kernel - 1) * kernel_dilation) / input_dilation, but at most all inputs.
std::int64_t input_range(const FieldDimension& dimension, std::int64_t outputs, std::int64_t kernel);

/// Computes a plan's load. Requires: no split exceeds its dimension, and serial splits divide the channel blocks.
Load load_of(const ViewedProduct& viewed, const Vertex& vertex, const Target& target, const Splits& splits);

/// Cycles that all serial steps together spend on each activity.
struct PlanCycles {
  Cycles exchange_input;
  Cycles exchange_weights;
  Cycles exchange_partials;  ///< Sending partial sums to the tiles that add them or hold the output.
  Cycles copy;               ///< Rearranging operands before the first step.
  Cycles compute;            ///< Executing the vertex.
  Cycles reduce;             ///< Adding partial sums of different tiles, or casting the result.
  Cycles slice;              ///< Reading a step's operands from the full tensors, and writing its results.
  Cycles accumulate;         ///< Adding a step's sums to those of earlier steps.

  [[nodiscard]] Cycles exchange() const { return exchange_input + exchange_weights + exchange_partials; }
  [[nodiscard]] Cycles total() const { return exchange() + copy + compute + reduce + slice + accumulate; }

  friend bool operator==(const PlanCycles&, const PlanCycles&) = default;
};

/// Temporary bytes of each kind. They are not all live at the same time: total() returns the peak.
struct PlanBytes {
  Bytes input;           ///< A step's inputs.
  Bytes weights;         ///< A step's weights.
  Bytes partials;        ///< A step's partial sums.
  Bytes vertex;          ///< Extra bytes that the vertex needs.
  Bytes reduce;          ///< Partial sums received from other tiles.
  Bytes copy;            ///< Operands that the view copies, before and after copying.
  Bytes sliced_weights;  ///< Full weights that steps slice, before and after they are rearranged.
  Bytes sum;             ///< Sums accumulated over the steps of inputs so far.

  [[nodiscard]] Bytes total() const;

  friend bool operator==(const PlanBytes&, const PlanBytes&) = default;
};

struct Cost {
  PlanCycles cycles;
  PlanBytes bytes;

  friend bool operator==(const Cost&, const Cost&) = default;
};

/// Computes the cost of a load. Both totals are monotonic in every number of the load.
Cost cost_of(const ViewedProduct& viewed, const Vertex& vertex, const Target& target, const Load& load);

/// Returns the cycles a tile takes to receive `bytes`. `shared`: whether both tiles of a bus receive the same bytes.
Cycles exchange_cycles(const Target& target, Bytes bytes, bool shared);

/// Cycles to add the partial sums of `sums` outputs per tile if each output has a partial sum on `depth` tiles.
struct Reduction {
  Cycles exchange;
  Cycles compute;
};
Reduction reduction_cycles(const Target& target, std::int64_t sums, std::int64_t depth);

Cycles copy_cycles(const Target& target, Bytes bytes);

/// Returns the cycles to slice `elements` out of a tile's share of a tensor, or to write them into it.
Cycles slice_cycles(const Target& target, std::int64_t elements);
Cycles accumulate_cycles(const Target& target, std::int64_t sums);

}  // namespace poprun::planner
