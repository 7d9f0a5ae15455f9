#pragma once

#include <memory>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/compilation/job_length.h"
#include "replica/compiler/compile.h"
#include "replica/models/onnx/job_model.h"

/// From a job's configuration to what the rooms take. Pure functions; main.cc wires the rest.
namespace poprun {

/// With `onnx`, that model in the place of a built-in one; its weights come from the host.
/// Errors: kUsage if the model or device is unknown; kData, no label of the training data counts.
Result<CompileOptions> compile_options(const proto::RunConfig& config, const proto::Dataset& dataset,
                                       std::shared_ptr<onnx_import::JobModel> onnx = nullptr);

/// Adds to the Program's notes what the data server found in the data, what building the ONNX model decided, if there
/// is one, and what of the learning rate's schedule the run is too short for.
void add_notes(const onnx_import::JobModel* onnx, const proto::RunConfig& config, const proto::Dataset& dataset,
               Program& program);

/// Makes a Program that does not fit, by `out_of_memory` of check_fits, one to execute all the same, and notes it.
/// Requires: the configuration allows it.
void allow_out_of_memory(const Error& out_of_memory, const proto::RunConfig& config, Program& program);

}  // namespace poprun
