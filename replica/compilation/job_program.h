#pragma once

#include <memory>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/compilation/host_weights.h"
#include "replica/compiler/automatic.h"
#include "replica/models/onnx/job_model.h"
#include "replica/program/program.h"

/// The one path from a job's configuration to its Program: for the job itself, `--dry-run` and `profile`.
namespace poprun {

/// Inputs of a job's compilation. Both messages must outlive this.
struct JobInputs {
  const proto::RunConfig& config;
  const proto::Dataset& dataset;
  std::shared_ptr<onnx_import::JobModel> onnx;  ///< Null for a built-in model.
};

/// Compiles the job, and adds the notes of data, model and schedule (add_notes). `options`: those of compile_options
/// for these inputs, possibly changed. Errors: those of plan_program.
Result<Program> compile_job(const JobInputs& inputs, const CompileOptions& options,
                            const CompileObserver& observer = {});

/// Adds notes on how the file of initial weights fits the Program. If weights that the file lacks have only the values
/// of their initialisers, recompiles the job with these (changes `options`) and returns true. Errors: those of
/// plan_program.
Result<bool> take_match(const WeightMatch& match, const JobInputs& inputs, CompileOptions& options, Program& program);

}  // namespace poprun
