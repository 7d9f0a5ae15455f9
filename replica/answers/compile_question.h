#pragma once

#include <memory>
#include <string>

#include "proto/inquiry.pb.h"
#include "replica/base/error.h"
#include "replica/compilation/host_weights.h"
#include "replica/models/onnx/job_model.h"
#include "replica/program/program.h"

/// The files of the model that come with a CompileQuestion.
namespace poprun {

/// Returns the ONNX model; null if the configuration has a built-in one. Errors: those of JobModel::parse.
Result<std::shared_ptr<onnx_import::JobModel>> onnx_model_of(const proto::ModelConfig& model, const std::string& bytes);

/// Matches the file of initial weights, if the configuration names one, with the Program. Errors: those of
/// match_initial_weights.
Result<WeightMatch> match_weights_of(const proto::CompileQuestion& job, const Program& program);

}  // namespace poprun
