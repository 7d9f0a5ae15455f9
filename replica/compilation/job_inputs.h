#pragma once

#include <memory>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/compilation/job_length.h"
#include "replica/compiler/compile.h"
#include "replica/models/onnx/job_model.h"

/// Converts a job's configuration to the options of the other rooms. Pure functions; main.cc wires the rest.
namespace poprun {

/// Returns the options of the compiler. `onnx` replaces the built-in model; its weights come from the host. Errors:
/// kUsage if the model or device is unknown; kData if no label of the training data counts.
Result<CompileOptions> compile_options(const proto::RunConfig& config, const proto::Dataset& dataset,
                                       std::shared_ptr<onnx_import::JobModel> onnx = nullptr);

/// Adds notes to the Program: findings of the data server, decisions of building the ONNX model, if there is one, and a
/// schedule of the learning rate for which the run is too short.
void add_notes(const onnx_import::JobModel* onnx, const proto::RunConfig& config, const proto::Dataset& dataset,
               Program& program);

/// Prepares a Program that does not fit (`out_of_memory` is from check_fits) for execution nevertheless, and adds a
/// note. Requires: the configuration allows it.
void allow_out_of_memory(const Error& out_of_memory, const proto::RunConfig& config, Program& program);

}  // namespace poprun
