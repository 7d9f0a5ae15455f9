#pragma once

#include <cstdint>
#include <memory>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/compiler/compile.h"
#include "replica/loops/inference_loop.h"
#include "replica/loops/training_loop.h"
#include "replica/models/onnx/job_model.h"
#include "replica/program/host_contract.h"

/// From a job's configuration to what the rooms take. Pure functions; main.cc wires the rest.
namespace poprun {

/// With `onnx`, that model in the place of a built-in one; its weights come from the host.
/// Errors: kUsage, no such model or device; kData, no label of the training data counts.
Result<CompileOptions> compile_options(const proto::RunConfig& config,
                                       const proto::Dataset& dataset,
                                       std::shared_ptr<onnx_import::JobModel> onnx = nullptr);

/// Adds to the Program's notes what the data server found in the data, what building the ONNX model
/// decided, if there is one, and what of the learning rate's schedule the run is too short for.
void add_notes(const onnx_import::JobModel* onnx, const proto::RunConfig& config,
               const proto::Dataset& dataset, Program& program);

/// Makes a Program that does not fit, by `out_of_memory` of check_fits, one to execute all the
/// same, and notes it. Requires: the configuration allows it.
void allow_out_of_memory(const Error& out_of_memory, const proto::RunConfig& config,
                         Program& program);

/// Samples that a replica computes at once: in training the compute batch, in inference the
/// micro-batch. Divides the micro-batch: of a compute batch that does not, what both have in
/// common.
std::uint32_t compute_batch_size(const proto::RunConfig& config);

/// How much a job does.
struct JobLength {
  std::uint64_t steps = 0;            ///< Training steps; 0 in inference.
  std::uint64_t steps_per_epoch = 1;  ///< > 0.
  std::uint64_t test_items = 0;       ///< In each evaluation, or in inference; all replicas'.
  std::uint64_t test_batches = 0;     ///< Likewise, one replica's batches of them. 0: none.
};

/// Errors: kUsage, the dataset does not fill one global batch.
Result<JobLength> job_length(const proto::RunConfig& config, const proto::Dataset& dataset);

/// What the loop of such a job takes. Errors: those of `job_length`; kUsage, no such schedule.
Result<TrainingOptions> training_options(const proto::RunConfig& config,
                                         const proto::Dataset& dataset);
EngineOptions inference_options(const proto::RunConfig& config);

/// Items that inference runs over: the test part, or where there is none the training items.
std::uint64_t inference_items(const proto::Dataset& dataset);

/// What replica `replica` reads from stream kTrain or kTest.
proto::Selection selection_of(const proto::RunConfig& config, const proto::Dataset& dataset,
                              JobStream stream, std::uint32_t replica);

}  // namespace poprun
