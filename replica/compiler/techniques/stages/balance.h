#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/job/pass.h"
#include "replica/compiler/planner/product_options.h"
#include "replica/compiler/techniques/stages/stage_cuts.h"
#include "replica/device/device.h"

namespace poprun {

/// A split that was compiled.
struct MeasuredSplit {
  std::vector<std::size_t> begins;  ///< The first layer of each stage except the first.
  std::vector<Bytes> peaks;         ///< Memory that the IPU of each stage needs.
};

/// Returns the best split, as the first layer of each stage except the first. In the best split, the fullest stage
/// exceeds the capacity by the least, ideally not at all. Splits that tie are compared by the cycles of the slowest
/// stage, then by the bytes of the fullest stage, and then by how early later stages begin. `measured` corrects the
/// estimated memory of stages (StageBytes). Requires: 1 <= stages <= layers. Deterministic. Cost: O(stages * layers^2).
std::vector<std::size_t> balance(const Balancing& balancing, std::span<const MeasuredSplit> measured = {});

/// Returns the split to compile when none of `measured` fits. This is the balanced split or, if that has been measured,
/// its neighbour (one stage begins one layer earlier or later) whose fullest stage has the lowest estimate. Returns
/// nothing if all of these have been measured, or if the last measured split needs over a quarter more memory than
/// the IPUs have. Requires: `measured` is not empty.
std::optional<std::vector<std::size_t>> next_split(const Balancing& balancing, std::span<const MeasuredSplit> measured);

/// The memory that any stage would need.
///
///   bytes of its layers + rate * activations of its layers + rest
///
/// Until a split has been compiled, rate and rest are 0, so estimates are low. Then both are fitted, for each stage, to
/// the measured peak of the latest split. The difference from the estimate counts as activations, with a rate of at
/// most `in_flight`, and the remainder is the stage's rest. For a stage that is part of a measured split, the measured
/// peak is used.
class StageBytes {
 public:
  /// Both arguments must outlive this object.
  StageBytes(const Balancing& balancing, std::span<const MeasuredSplit> measured);

  /// Returns the bytes of `stage` if it holds layers [begin, end).
  [[nodiscard]] std::int64_t operator()(std::size_t stage, std::size_t begin, std::size_t end) const;

 private:
  struct Correction {
    double rate = 0;
    std::int64_t rest = 0;
  };

  [[nodiscard]] std::int64_t estimate(const Correction& correction, std::size_t begin, std::size_t end) const;

  std::span<const MeasuredSplit> measured_;
  std::vector<std::int64_t> bytes_ = {0};  ///< Sums over the first 0, 1, ... layers.
  std::vector<std::int64_t> activations_ = {0};
  std::vector<Correction> corrections_;  ///< Indexed by stage.
};

struct LayerUse {
  const Device& device;
  bool training = false;
  bool half = false;                         ///< Weights, activations and gradients are float16.
  bool half_partials = false;                ///< Products are also summed in float16.
  std::int64_t permille = kDefaultPermille;  ///< Thousandths of a tile's memory for a product's temporaries.
  std::int64_t state_bytes = 0;              ///< Bytes that the optimiser keeps per parameter element.
};

/// Estimates the cost of each layer of the model.
///
///   cycles       Convolutions and matmuls count as planned, in training with their two gradients
///                (one if the input comes from the host). Other operators count as estimated, in
///                training three times, because the backward pass takes twice as long.
///   bytes        Parameters count, and in training also their gradients and, in the first layer
///                that uses a parameter, its optimiser state.
///   activations  All outputs of the layer's operations count.
///
/// A parameter that several layers use counts for each of them.
std::vector<LayerWeight> layer_weights(const ForwardPass& forward, const LayerUse& use);

}  // namespace poprun
