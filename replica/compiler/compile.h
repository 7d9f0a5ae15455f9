#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/compiler/optimizers/optimizers.h"
#include "replica/compiler/precision/precision.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/ops/builder/builder.h"
#include "replica/program/program.h"

namespace poprun {

/// A tensor that the host streams bring in every micro-batch.
struct StreamedTensor {
  std::string name;
  TensorType type;  ///< With the micro-batch dimension.
};

/// What a forward pass ends in: scalars, and what inference puts out.
struct ForwardOutputs {
  TensorId loss;  ///< Mean over `count` items.
  TensorId correct;
  TensorId count;
  std::optional<TensorId> prediction = {};  ///< [micro-batch, ...].
  bool scored = true;  ///< False: there are no scalars, only a prediction. Never in training.
};

/// Everything a Program depends on.
struct CompileOptions {
  std::string model;  ///< For reports.
  std::vector<StreamedTensor> inputs;

  /// Appends the model's forward pass on the streamed tensors, which come in the order of `inputs`.
  /// `training` is false where it is built for evaluation, on the same variables.
  std::function<ForwardOutputs(Builder&, const std::vector<TensorId>&, bool training)> forward;

  Device device;
  std::int64_t replicas = 1;
  std::int64_t ipus_per_replica = 1;
  std::uint32_t micro_batch_size = 1;
  std::int64_t gradient_accumulation = 1;
  std::string frozen;          ///< Parameters whose names it matches (ECMAScript) are not trained.
  OptimizerOptions optimizer;  ///< `gradient_scale` and `master_weights` are the compiler's to set.
  PrecisionOptions precision;
  Bytes gradient_bucket;    ///< > 0: gradients travel in buckets during backward.
  double loss_scaling = 1;  ///< The loss is multiplied by it; 0: by what the host says, see below.
  bool inference = false;   ///< No training: evaluation that puts out predictions.
  bool evaluate = true;
  bool initial_weights_from_host = false;
};

/// The job as a graph of functions, with the streams of program/host_contract.h:
///
///   load            sets up parameters, buffers and optimiser state
///   train           one step: streams "control" and "train" in, forward, backward, exchange,
///                   update; stream "step" out. With loss_scaling 0 they have the loss scale and
///                   the gradient factor
///   evaluate_begin, evaluate, evaluate_end
///                   stream "test" in for every call of evaluate; "evaluation" out
///   save            stream "weights" out: parameters and buffers in name order
///
/// Inference has no train and no save; its evaluate also sends the prediction out, as "outputs".
///
/// Buffers (running statistics) follow each replica's own micro-batches, and the step's exchange
/// replaces them by their mean over the replicas. So all replicas hold equal ones between steps,
/// wherever they run; a running statistic is linear in those of the batches, so it is the one of
/// the replicas' mean statistics.
Result<Graph> build_job(const CompileOptions& options);

/// The job as a Program: `build_job`, liveness, placement, device time. Every plan is verified. It
/// may need more memory than an IPU has.
///
/// Deterministic. Errors: kUsage, model and data do not fit each other; kBug, a plan's verifier
/// refused it.
Result<Program> plan_program(const CompileOptions& options);

/// `plan_program`, for execution. Errors: also kOutOfMemory, with the table of out_of_memory.h.
Result<Program> compile(const CompileOptions& options);

/// A graph that is no job, for execution: of the options, those of model, device and replicas
/// matter. Errors: as `compile`.
Result<Program> compile_graph(const Graph& graph, const CompileOptions& options);

}  // namespace poprun
