#pragma once

#include <cstdint>
#include <memory>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/compiler/compile.h"
#include "replica/loops/training_loop.h"
#include "replica/models/onnx/job_model.h"

/// From a job's configuration to what the rooms take. Pure functions; main.cc wires the rest.
namespace poprun {

/// With `onnx`, that model in the place of a built-in one; its weights come from the host.
/// Errors: kUsage, no such model or device.
Result<CompileOptions> compile_options(const proto::RunConfig& config,
                                       const proto::Dataset& dataset,
                                       std::shared_ptr<onnx_import::JobModel> onnx = nullptr);

/// Adds to the Program's notes what building the model decided; none where `onnx` is null.
void add_notes(const onnx_import::JobModel* onnx, Program& program);

/// Errors: kUsage, the dataset does not fill one global batch.
Result<TrainingOptions> training_options(const proto::RunConfig& config,
                                         const proto::Dataset& dataset);

/// Items that inference runs over: the test part, or where there is none the training items.
std::uint64_t inference_items(const proto::Dataset& dataset);

/// What replica `replica` reads from stream "train" or "test".
proto::Selection selection_of(const proto::RunConfig& config, const proto::Dataset& dataset,
                              const std::string& stream, std::uint32_t replica);

/// Samples of all replicas in one step of training, or one batch each of inference.
std::uint32_t global_batch(const proto::RunConfig& config);

}  // namespace poprun
