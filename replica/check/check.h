#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/check.pb.h"
#include "proto/coordinator.pb.h"
#include "replica/base/error.h"
#include "replica/check/variants.h"
#include "replica/loops/loop.h"
#include "replica/loops/training_loop.h"
#include "replica/program/program.h"

namespace poprun {

/// Batches of the evaluation after the last step, at most: enough for every stage to be busy.
inline constexpr std::uint64_t kCheckedBatches = 8;

/// The comparisons to come.
struct CheckedVariants {
  std::vector<Variant> variants;
  std::vector<std::string> notes;  ///< What was left out, and why.
};

/// Everything that a replica needs for a check. All references must outlive it.
struct CheckPorts {
  Communicator& communicator;
  ProgressSink& progress;
  StreamFactory streams;
  const HostWeights& initial_weights;  ///< As LoopPorts'; complete once `variants` was called.

  /// Whether this machine has so much more memory for each of its replicas; called on every replica, before a run that
  /// touches more than the earlier ones.
  std::function<Status(Bytes more)> check_host;

  std::uint32_t sharding_group = 0;  ///< Replicas that share tensors in some variants; 0: all.

  // Called on replica 0 only; `compile` for one variant after another. A Program that does not fit its memory is no
  // error.
  std::function<Result<CheckedVariants>()> variants;
  std::function<Result<Program>(const Variant&)> compile;
  std::function<void(proto::ReportItem)> report;
};

/// One replica's part of a check: runs the same few steps of a job as every variant, in lock-step with the other
/// replicas, and reports a CheckPlan and a CheckedRun for each variant.
///
/// The first variant that fits the memory of its IPUs is the reference. Every replica compares the state after each
/// step of the others with that of its own reference run, and the evaluation
/// after the last step. Where one differs, both runs are repeated up to there, and the values that the step or the
/// evaluation computed are compared in the order of the reference: the first one that differs is reported, from the
/// lowest replica that saw the difference first.
///
/// All runs use the same memory, one arena for each IPU, which is filled with NaN before each run. Only the reference
/// ends the check when a number is not finite or an index out of range. It runs twice: the second time without looking
/// for such numbers, as the others, for its wall time.
///
/// A variant whose Program has run is not run again. Recomputation "standard" has the job's memory goal, or if it would
/// recompute nothing, half the memory that the job needs without it.
///
/// `options` are the job's, with as many steps as each run has. Dumps and drains are no part of a check.
///
/// Errors: those of `variants`, communicator, host streams and engine. That a variant differs is none.
Status run_check(const CheckPorts& ports, TrainingOptions options);

}  // namespace poprun
