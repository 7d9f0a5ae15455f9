#pragma once

#include <memory>
#include <string>

#include "proto/inquiry.pb.h"
#include "replica/base/error.h"
#include "replica/compilation/host_weights.h"
#include "replica/models/onnx/job_model.h"
#include "replica/program/program.h"

/// Answers the questions about a job, `estimate` and `profile`, and reads the model files that come with them.
namespace poprun {

/// Returns the ONNX model; null if the configuration has a built-in one. Errors: those of JobModel::parse.
Result<std::shared_ptr<onnx_import::JobModel>> onnx_model_of(const proto::ModelConfig& model, const std::string& bytes);

/// Matches the file of initial weights, if the configuration names such a file, with the Program. Errors: those of
/// match_initial_weights.
Result<WeightMatch> match_weights_of(const proto::CompileQuestion& job, const Program& program);

/// Appends the answer to `poprun-emu estimate` to `text`; text before an error stays.
///
/// Errors: those of `compile_options`, `estimate`, `plan_program` and `JobModel::parse`; if a key is varied, they name
/// it with its value. A job that does not fit is not an error.
Status answer_estimate(const proto::EstimateQuestion& question, std::string& text);

/// The answer to `poprun-emu profile`: writes the serialised Profile of the compiled job, with its report, to the file
/// that the question names. A job that does not fit is not an error; its report says how much memory is missing.
/// Appends the wall time by activity to `text`, if requested.
///
/// Errors: kUsage if the device does not have the tile, or the replica does not have the IPU; kInfrastructure if the
/// file cannot be written; those of `compile_options`, `plan_program` and `match_weights_of`.
Status answer_profile(const proto::ProfileQuestion& question, std::string& text);

}  // namespace poprun
