#pragma once

#include <cstdint>
#include <vector>

#include "replica/choices/choices.h"

/// Schedules: the order in which the stages of a pipeline work on a step's micro-batches.
///
///   grouped, 3 stages on 3 IPUs, 6 micro-batches; A = forward, G = backward, one column per cycle:
///
///     IPU 0 | A1   A2   A3   A4   A5G1 A6G2 G3   G4   G5   G6
///     IPU 1 |      A1   A2   A3G1 A4G2 A5G3 A6G4 G5   G6
///     IPU 2 |           A1G1 A2G2 A3G3 A4G4 A5G5 A6G6
///           |    ramp-up         | steady  |    ramp-down
///
///   phased, 3 stages that take turns on 2 IPUs, 3 micro-batches:
///
///     IPU 0 | A1 A2 A3          A1G1 A2G2 A3G3          G1 G2 G3
///     IPU 1 |          A1 A2 A3                G1 G2 G3
namespace poprun {

enum class Part : std::uint8_t { kForward, kBackward };

/// One call: a part of a stage works on one micro-batch.
struct Slot {
  std::uint32_t ipu = 0;
  std::uint32_t stage = 0;
  Part part = Part::kForward;
  std::int64_t micro_batch = 0;  ///< Counted from 0.

  friend bool operator==(const Slot&, const Slot&) = default;
};

/// Slots between two synchronisations. Tensors move from stage to stage at the cycle's end.
struct Cycle {
  /// Sorted by IPU, then forward parts (by rising stage) before backward parts (by falling stage). This order satisfies
  /// every dependency.
  std::vector<Slot> slots;  ///< Never empty.
};

/// Cycles that repeat. Their micro-batch numbers rise by one per round.
struct Repeat {
  std::int64_t rounds = 1;    ///< > 0.
  std::vector<Cycle> cycles;  ///< The cycles of round 0.
};

/// The cycles of one step, or of one pass over the test set.
struct Timetable {
  Schedule schedule = Schedule::kSequential;
  std::vector<std::uint32_t> ipu_of_stage;
  std::int64_t micro_batches = 0;
  bool training = false;
  std::vector<Repeat> repeats;  ///< In order of execution.
};

/// Returns the timetable for `micro_batches` micro-batches that pass through n stages, with stage s on ipu_of_stage[s].
/// Without training, it contains only forward parts. The table shows the cycle in which a part works on micro-batch i
/// (all counts start at 0):
///
///                  forward of stage s    backward of stage s
///     sequential   2ni + s               2ni + 2n-1-s
///     grouped        i + s                 i + 2n-2-s
///     interleaved   2i + s                2i + 2n-1-s
///
///     phased        ms + i               m(2n-2-s) + i     for m micro-batches
///
///     without training: sequential ni + s, phased ms + i, otherwise i + s
///
/// A part works one cycle after the part whose result it needs. Exception: in the grouped and phased schedules, the
/// last stage's backward part works in the same cycle as its forward part.
///
/// There are at most three repeats: ramp-up, steady state and ramp-down, of O(n) cycles each. If no two rounds are
/// identical, all cycles are unrolled. The phased schedule has one repeat of one cycle per phase, which is a stage in
/// one direction, or the last stage in both. Cost: O(n²), whatever the number of micro-batches. Requires: at least one
/// stage and one micro-batch.
Timetable make_timetable(Schedule schedule, std::vector<std::uint32_t> ipu_of_stage, std::int64_t micro_batches,
                         bool training);

/// Returns the largest number of micro-batches that are between the start of their forward part and the end of their
/// backward part in `stage` at one time. Each needs its own version of the activations. If the result is 1, there is no
/// stash. Requires: stage < stages, micro_batches > 0.
std::int64_t stash_length(Schedule schedule, std::uint32_t stages, std::uint32_t stage, std::int64_t micro_batches);

}  // namespace poprun
