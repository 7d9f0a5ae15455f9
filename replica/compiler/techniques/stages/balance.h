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
  std::vector<std::size_t> begins;  ///< The first layer of each stage but the first.
  std::vector<Bytes> peaks;         ///< What the IPU of each stage needs.
};

/// The first layer of each stage but the first. Of all splits it takes one whose fullest stage exceeds the capacity
/// least (best, not at all); of these, one whose slowest stage takes fewest cycles; of these, one whose fullest stage
/// has fewest bytes. Ties: later stages begin as early as they can. The memory of a stage is an estimate, which
/// `measured` corrects (StageBytes).
///
/// Requires: 1 <= stages <= layers. Deterministic. Cost: O(stages * layers^2).
std::vector<std::size_t> balance(const Balancing& balancing, std::span<const MeasuredSplit> measured = {});

/// The split to compile when none of `measured` fits: the balanced one or, where that has been measured, the one beside
/// it (one stage begins one layer earlier or later) whose fullest stage is estimated to need least. Nothing if all
/// of these have been measured, or where the stages of the one measured last need a quarter more than all IPUs have
/// together.
///
/// Requires: `measured` is not empty.
std::optional<std::vector<std::size_t>> next_split(const Balancing& balancing, std::span<const MeasuredSplit> measured);

/// Memory that every possible stage needs on its IPU.
///
///   bytes of its layers + rate * activations of its layers + rest
///
/// Rate and rest are 0 until a split has been compiled, so the first estimate is low. Then they are a stage's own, such
/// that the latest measured split has its measured peaks: the difference counts as activations, with a rate up to
/// `in_flight`, and the rest stays with the stage. A stage of the same layers as a measured one needs what was
/// measured.
class StageBytes {
 public:
  /// Both must outlive this.
  StageBytes(const Balancing& balancing, std::span<const MeasuredSplit> measured);

  /// Layers [begin, end) as this stage.
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
  std::vector<Correction> corrections_;  ///< By stage.
};

/// The job's use of the layers of its forward pass.
struct LayerUse {
  const Device& device;
  bool training = false;
  bool half = false;                         ///< Weights, activations and gradients are float16.
  bool half_partials = false;                ///< Products are also summed in float16.
  std::int64_t permille = kDefaultPermille;  ///< Part of a tile's memory for a product's values.
  std::int64_t states = 0;                   ///< float32 numbers that the optimiser keeps for each of a parameter.
};

/// Estimates the cost of each layer of the model.
///
///   cycles       convolutions' and matmuls' as they are planned, in training with their two
///                gradients (one for what comes from the host); other operators' work, in training
///                three times: the backward pass takes twice as long
///   bytes        in training a parameter has a gradient, and on the IPU of its first user its
///                optimiser state
///   activations  all outputs of its operations
///
/// A parameter that several layers use weighs on each of them.
std::vector<LayerWeight> layer_weights(const ForwardPass& forward, const LayerUse& use);

}  // namespace poprun
