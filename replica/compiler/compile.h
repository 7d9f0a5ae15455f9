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
///   train           one step: streams "control" and "train" in, forward, backward, exchange, update; stream "step"
///   out;
///                   with loss_scaling 0 the streams include the loss scale and the gradient factor
///   evaluate_begin, evaluate, evaluate_end
///                   stream "test" in for every batch, all of them in one call of evaluate; "evaluation" out
///   save            stream "weights" out: parameters and buffers in name order
///
/// Inference has no train and no save; its evaluate also sends each batch's prediction out, as "outputs". Buffers
/// (running statistics) follow each replica's own micro-batches, and the step's exchange replaces them with their mean
/// over the replicas, so all replicas hold the same buffers between steps, wherever they run. As a running statistic is
/// linear in the statistics of the batches, this mean is that of the replicas' mean statistics. Balanced stages are
/// those that the estimate gives, whether or not they fit.
Result<Graph> build_job(const CompileOptions& options);

struct Compiled {
  using Settings = CompileOptions;

  CompileOptions options;
  Job job;
  Program program;
  bool was_watched = false;  ///< An observer saw its passes.

  /// Returns how many more bytes the fullest IPU would need; at most 0 if the Program fits.
  [[nodiscard]] std::int64_t lacking() const;
};

/// Compiles the job as `options` say: `build_job`, liveness, aliases, plans, addresses, device time. Open options have
/// their mildest value (balanced stages as estimated, Storage::kAuto on the chip); automatic.h settles them. Every plan
/// is verified. The Program may need more memory than an IPU has: see `lacking`. Deterministic. Errors: kUsage if
/// model, data and options do not fit together; kBug if a verifier rejects a pass or a plan.
Result<Compiled> compile_settled(const CompileOptions& options, const CompileObserver& observer = {});

/// Compiles a graph that is not a job. Only the options for the model, device, replicas and memory apply. The Program
/// may need more memory than an IPU has. Errors: kBug as for `compile_settled`, or if the graph is invalid.
Result<Program> plan_graph(const Graph& graph, const CompileOptions& options);

}  // namespace poprun
