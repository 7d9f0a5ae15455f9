#pragma once

#include <istream>
#include <string>
#include <vector>

#include "replica/base/error.h"

/// Questions that poprun-emu-replica answers without a job: no launcher, no MPI, no data. The launcher forwards them,
/// since it does not know the models.
namespace poprun {

/// The text to print, and the status to end with. The text comes before the error.
struct Answer {
  std::string text;
  Status status;
};

///   --list-models   every built-in model: parameters, multiply-accumulates of a forward pass of
///                   one sample at its default sizes, these sizes, and the sample
///
///   --compile       figures of the compiled job in `input`, a CompileQuestion of proto/inquiry.proto: parameters and
///                   operators even if the job does not fit
///
///   --estimate      estimated needs of the jobs in `input`, an EstimateQuestion: see job_answers.h
///
///   --profile       nothing, or wall time by activity; writes the Profile of the job in `input`, a ProfileQuestion, to
///                   a file: see job_answers.h
///
///   --check-model   nothing, if the ONNX model in `input`, a ModelQuestion, can be imported
///
/// Errors: kUsage if the question is unknown; those of `compile`, `training_options`, `answer_estimate`,
/// `answer_profile` and `JobModel::parse`.
Answer answer_inquiry(const std::vector<std::string>& arguments, std::istream& input);

}  // namespace poprun
