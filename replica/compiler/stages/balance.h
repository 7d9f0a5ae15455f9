#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "replica/base/units.h"

namespace poprun {

/// What a layer asks of the IPU that it is on.
struct LayerWeight {
  Cycles cycles;           ///< One micro-batch: forward, and in training backward.
  Bytes bytes;             ///< Parameters with their gradients and optimiser state.
  Bytes activations = {};  ///< All that its forward pass writes in one micro-batch.
};

/// Layers to spread in order over stages that have an IPU each.
struct Balancing {
  std::vector<LayerWeight> layers;
  /// By stage: how many micro-batches' activations it keeps at once, at most its stash's
  /// length, and 1 where it recomputes them.
  std::vector<std::int64_t> in_flight;
  Bytes capacity;  ///< One IPU's.
  /// By stage, whether it runs its forward part again; empty: none does. That takes a third of
  /// its layers' cycles, since the backward pass takes twice as long as the forward pass.
  std::vector<bool> recomputes = {};
};

/// A split that was compiled.
struct MeasuredSplit {
  std::vector<std::size_t> begins;  ///< The first layer of each stage but the first.
  std::vector<Bytes> peaks;         ///< What the IPU of each stage needs.
};

/// The first layer of each stage but the first. Of all splits it takes one whose fullest stage
/// exceeds the capacity least (best, not at all); of these, one whose slowest stage takes fewest
/// cycles; of these, one whose fullest stage has fewest bytes. Ties: later stages begin as early as
/// they can. The memory of a stage is an estimate, which `measured` corrects (StageBytes).
///
/// Requires: 1 <= stages <= layers. Deterministic. Cost: O(stages * layers^2).
std::vector<std::size_t> balance(const Balancing& balancing,
                                 std::span<const MeasuredSplit> measured = {});

/// The split to compile when none of `measured` fits: the balanced one or, where that has been
/// measured, the one beside it (one stage begins one layer earlier or later) whose fullest stage is
/// estimated to need least. Nothing where all of these have been measured, or where the stages of
/// the one measured last need a quarter more than all IPUs have together.
///
/// Requires: `measured` is not empty.
std::optional<std::vector<std::size_t>> next_split(const Balancing& balancing,
                                                   std::span<const MeasuredSplit> measured);

}  // namespace poprun
