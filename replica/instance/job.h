#pragma once

#include <cstdint>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/compiler/compile.h"
#include "replica/engine/training_loop.h"

/// From a job's configuration to what the rooms take. Pure functions; main.cc wires the rest.
namespace poprun {

/// Errors: kUsage, no such model or device.
Result<CompileOptions> compile_options(const proto::RunConfig& config,
                                       const proto::Dataset& dataset);

/// Errors: kUsage, the dataset does not fill one global batch, or has nothing to infer from.
Result<TrainingOptions> training_options(const proto::RunConfig& config,
                                         const proto::Dataset& dataset);

/// What replica `replica` reads from stream "train" or "test".
proto::Selection selection_of(const proto::RunConfig& config, const std::string& stream,
                              std::uint32_t replica);

/// Samples of all replicas in one step of training, or one batch each of inference.
std::uint32_t global_batch(const proto::RunConfig& config);

}  // namespace poprun
