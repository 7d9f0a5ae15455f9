#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "proto/check.pb.h"
#include "proto/coordinator.pb.h"
#include "replica/base/error.h"
#include "replica/base/note.h"
#include "replica/check/variants.h"
#include "replica/loops/loop.h"
#include "replica/loops/training_loop.h"
#include "replica/program/program.h"

namespace poprun {

/// Maximum number of batches in the evaluation after the last step: enough to keep every stage busy.
inline constexpr std::uint64_t kCheckedBatches = 8;

struct CheckedVariants {
  std::vector<Variant> variants;
  std::vector<Note> notes;  ///< Remarks on the choice, such as which variants were left out and why.
};

/// Everything that a replica needs for a check. All references must outlive it.
struct CheckPorts {
  Communicator& communicator;
  ProgressSink& progress;
  StreamFactory streams;
  const HostWeights& initial_weights;  ///< As in LoopPorts; complete after `variants` was called.

  /// Checks that this machine has `more` bytes of memory for each replica. It is called on all replicas before a run
  /// that touches more memory than before.
  std::function<Status(Bytes more)> check_host;

  bool certifies = false;            ///< Whether to report hashes of Programs and of the state.
  std::uint32_t sharding_group = 0;  ///< Number of replicas that share a tensor in sharded variants; 0: all.

  // These are called on replica 0 only (`compile` for each variant). A Program that does not fit is not an error.
  std::function<Result<CheckedVariants>()> variants;
  std::function<Result<Program>(const Variant&)> compile;
  std::function<void(proto::ReportItem)> report;
};

/// Runs one replica's part of a check: the same few steps in every variant of a job, in lock-step with the other
/// replicas. Reports a CheckPlan, and a CheckedRun for each variant.
///
/// The first variant that fits in the memory of its IPUs is the reference. Every replica compares the other variants
/// with its own reference run: the state after each step, and the evaluation after the last one. If a variant differs,
/// both runs are repeated up to the first difference, and the values computed in that step or evaluation are compared
/// in the order of the reference run. Of the replicas with the earliest difference, the one with the lowest number
/// reports it.
///
/// All runs use the same memory, one arena per IPU, which is filled with NaN before each run. A number that is not
/// finite, or an index that is out of range, ends the check only in the reference run; in any other run, it counts as
/// a difference. To measure its wall time, the reference run is repeated with the options of the other runs. Variants
/// that compile to the same Program run once. The memory goal of recomputation "standard" is the job's own or, if that
/// goal causes no recomputation, half the memory that the job needs without recomputation. `options` are the job's,
/// except for `total_steps`, which is the number of steps of each run. Dumps and drains are not part of a check.
/// Errors: those of `variants`, communicator, host streams and engine. A variant that differs is not an error.
Status run_check(const CheckPorts& ports, TrainingOptions options);

}  // namespace poprun
