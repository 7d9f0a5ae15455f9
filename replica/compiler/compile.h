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
///   train           one step: streams "control" and "train" in, forward, backward, exchange, update,
///                   stream "step" out; with loss_scaling 0, the streams include the loss scale and
///                   the gradient factor
///   evaluate_begin, evaluate, evaluate_end
///                   stream "test" in for every batch, all of them in one call of evaluate; "evaluation" out
///   save            stream "weights" out: parameters and buffers in name order
///
/// In inference, there is no train and no save, and evaluate also sends each batch's prediction out, as "outputs".
/// Buffers (running statistics) follow each replica's own micro-batches, and the step's exchange replaces them with
/// their mean over the replicas, so all replicas hold the same buffers between steps, wherever they run. Since a
/// running statistic is linear in the statistics of the batches, this mean is the same as if it followed the replicas'
/// mean statistics. Stages that are to be balanced are cut as the estimate suggests, whether or not they fit.
Result<Graph> build_job(const CompileOptions& options);

struct Compiled {
  using Settings = CompileOptions;

  CompileOptions options;
  Job job;
  Program program;
  bool was_watched = false;  ///< Whether an observer saw its passes.

  /// Returns how many bytes the fullest IPU lacks. The result is at most 0 if the Program fits.
  [[nodiscard]] std::int64_t lacking() const;
};

/// Compiles the job as `options` say: runs `build_job`, then computes live ranges, aliases, plans, addresses and device
/// times. Options that are left open take their mildest value: balanced stages are as estimated, and Storage::kAuto is
/// on the chip. (The functions of automatic.h settle such options.) Every plan is verified. The Program may need more
/// memory than an IPU has: see `lacking`. Deterministic. Errors: kUsage if model, data and options do not fit together;
/// kBug if a verifier rejects a pass or a plan.
Result<Compiled> compile_settled(const CompileOptions& options, const CompileObserver& observer = {});

/// Compiles a graph that is not a job. Only the options for the model, device, replicas and memory apply. The Program
/// may need more memory than an IPU has. Errors: kBug as for `compile_settled`, or if the graph is invalid.
Result<Program> plan_graph(const Graph& graph, const CompileOptions& options);

}  // namespace poprun
