#pragma once

#include <cstddef>

#include "replica/base/error.h"
#include "replica/compiler/job/compile_options.h"
#include "replica/graph/graph.h"
#include "replica/program/program.h"

namespace poprun {

/// How many splits of balanced stages are compiled at most, until one fits.
inline constexpr std::size_t kSplitsMax = 6;

/// The job as a graph of functions, with the streams of program/host_contract.h:
///
///   load            sets up parameters, buffers and optimiser state
///   train           one step: streams "control" and "train" in, forward, backward, exchange,
///                   update; stream "step" out. With loss_scaling 0 they have the loss scale and
///                   the gradient factor
///   evaluate_begin, evaluate, evaluate_end
///                   stream "test" in for every batch, all of them in one call of evaluate;
///                   "evaluation" out
///   save            stream "weights" out: parameters and buffers in name order
///
/// Inference has no train and no save; its evaluate also sends each batch's prediction out, as
/// "outputs".
///
/// Buffers (running statistics) follow each replica's own micro-batches, and the step's exchange
/// replaces them by their mean over the replicas. So all replicas hold equal ones between steps,
/// wherever they run; a running statistic is linear in those of the batches, so it is the one of
/// the replicas' mean statistics.
///
/// Balanced stages are those that the estimate gives, whether they fit or not.
Result<Graph> build_job(const CompileOptions& options);

/// The job as a Program: `build_job`, liveness, aliases, placement, device time. Every plan is
/// verified. It may need more memory than an IPU has. Balanced stages that do not fit are balanced
/// again by what they were found to need, and compiled again, up to kSplitsMax in all: the Program
/// is the first that fits, or else the one that lacks least.
///
/// Where the job does not fit, more is outlined (Outlining::kAuto); then what may be anywhere
/// (Storage::kAuto) leaves the chip, optimiser state, then weights, accumulators and stashes, until
/// it does.
///
/// Deterministic. Errors: kUsage, model and data do not fit each other; kBug, the verifier of
/// a pass or of a plan refused it.
Result<Program> plan_program(const CompileOptions& options);

/// A graph that is no job; of the options, those of model, device, replicas and memory matter. It
/// may need more memory than an IPU has. Errors: kBug, as `plan_program`, or the graph is none.
Result<Program> plan_graph(const Graph& graph, const CompileOptions& options);

}  // namespace poprun
