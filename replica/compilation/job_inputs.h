#pragma once

#include <memory>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/compilation/host_weights.h"
#include "replica/compilation/job_length.h"
#include "replica/compiler/automatic.h"
#include "replica/compiler/compile.h"
#include "replica/models/onnx/job_model.h"
#include "replica/program/program.h"

/// The only path from a job's configuration to its Program, for the job itself, `--dry-run` and `profile`. The
/// functions are pure.
namespace poprun {

/// Returns the ONNX model; null if the configuration has a built-in one. Errors: those of JobModel::parse.
Result<std::shared_ptr<onnx_import::JobModel>> onnx_model_of(const proto::ModelConfig& model, const std::string& bytes);

/// Returns the device to emulate. Errors: kUsage if the device is unknown or lacks the configured tiles or bytes.
Result<Device> device_of(const proto::DeviceConfig& config);

/// Returns the settings of the planner for the products of a job.
PlannerOptions planner_options(const proto::RunConfig& config);

/// Returns the options of the compiler. `onnx`, if given, replaces the built-in model; the weights of an ONNX model
/// come from the host. Errors: kUsage if the model or device is unknown; kData if no label of the training data counts.
Result<CompileOptions> compile_options(const proto::RunConfig& config, const proto::Dataset& dataset,
                                       std::shared_ptr<onnx_import::JobModel> onnx = nullptr);

/// Adds notes to the Program: the data server's findings, for an ONNX model the decisions made while building it, and
/// warnings if the run is too short for the learning-rate schedule or for a disturbance (--what-if).
void add_notes(const onnx_import::JobModel* onnx, const proto::RunConfig& config, const proto::Dataset& dataset,
               Program& program);

/// Prepares the execution of a Program that does not fit, and adds a note. `out_of_memory` is the error of check_fits.
/// Requires: the configuration allows such a Program.
void allow_out_of_memory(const Error& out_of_memory, const proto::RunConfig& config, Program& program);

/// Inputs of a job's compilation. Both messages must outlive this.
struct JobInputs {
  const proto::RunConfig& config;
  const proto::Dataset& dataset;
  std::shared_ptr<onnx_import::JobModel> onnx;  ///< Null for a built-in model.
};

/// Compiles the job, and adds the notes of data, model and schedule (add_notes). `options` are those of compile_options
/// for these inputs, possibly changed. Errors: those of plan_program.
Result<Program> compile_job(const JobInputs& inputs, const CompileOptions& options,
                            const CompileObserver& observer = {});

/// Adds notes on how the file of initial weights matches the model. If weights are missing from the file and no ONNX
/// model provides them, first recompiles the job so that they keep their initialisers' values, which changes `options`.
/// Returns whether it recompiled. Errors: those of plan_program.
Result<bool> take_match(const WeightMatch& match, const JobInputs& inputs, CompileOptions& options, Program& program);

}  // namespace poprun
