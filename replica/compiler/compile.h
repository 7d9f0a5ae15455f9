#pragma once

#include <cstdint>

#include "replica/base/error.h"
#include "replica/compiler/job/pass.h"
#include "replica/graph/graph.h"
#include "replica/program/program.h"

namespace poprun {

/// Returns the job as a graph of functions, with the streams of program/host_contract.h:
///
///   load            sets up parameters, buffers and optimiser state
///   train           runs one step: streams "control" and "train" in; runs the forward and backward passes, the
///                   exchange and the update; streams "step" out. With loss_scaling 0, the streams include the
///                   loss scale and the gradient factor
///   evaluate_begin, evaluate, evaluate_end
///                   one call of evaluate runs all batches: streams "test" in for each batch, and "evaluation" out
///   save            streams "weights" out: parameters and buffers in name order
///
/// In inference, the job has no train or save function, and evaluate also streams each batch's prediction out, as
/// "outputs". Each replica updates its buffers (running statistics) from its own micro-batches, and the step's exchange
/// replaces them with their mean over the replicas, so all replicas hold the same buffers between steps, wherever the
/// replicas run. Since a running statistic is linear in the batches' statistics, this mean equals the running statistic
/// of the replicas' mean statistics. Balanced stages are cut as the estimate suggests, whether or not they fit.
Result<Graph> build_job(const CompileOptions& options);

struct Compiled {
  using Settings = CompileOptions;

  CompileOptions options;
  Job job;
  Program program;
  bool was_watched = false;  ///< Whether an observer saw the passes run.

  /// Returns by how many bytes the fullest IPU exceeds its memory. The result is at most 0 if the Program fits.
  [[nodiscard]] std::int64_t lacking() const;
};

/// Compiles the job as `options` specify: runs the passes, then computes live ranges, aliases, plans, addresses and
/// device times. Options that are left open get their cheapest value: balanced stages are cut as estimated, and
/// Storage::kAuto means on-chip. (The functions in automatic.h settle such options.) Every plan is verified. The
/// Program may need more memory than an IPU has: see `lacking`. Deterministic. Errors: kUsage if model, data and
/// options do not fit together; kBug if a verifier rejects a pass or a plan.
Result<Compiled> compile_settled(const CompileOptions& options, const CompileObserver& observer = {});

/// Compiles a graph that is not a job. Only the options for the model, device, replicas and memory apply. The Program
/// may need more memory than an IPU has. Errors: kBug as for `compile_settled`, or if the graph is invalid.
Result<Program> plan_graph(const Graph& graph, const CompileOptions& options);

}  // namespace poprun
