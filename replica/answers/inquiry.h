#pragma once

#include <istream>
#include <string>
#include <vector>

#include "replica/base/error.h"

/// Answers the launcher's questions about models and jobs, because the launcher contains no models. A process that
/// answers needs neither MPI nor data, and does not connect to the launcher.
namespace poprun {

/// The serialised message (proto/answers.proto), and the status with which the process ends. After an error, the
/// message contains the part of the answer that was computed before the error.
struct Answer {
  std::string message;
  Status status;
};

/// Returns the answer to the question in `arguments`:
///
///   --list-models   every built-in model, as a ModelList
///   --compile       a CompileAnswer about the job in `input`, a CompileQuestion (proto/inquiry.proto); it includes
///                   memory and time even if the job does not fit
///   --estimate      an EstimateAnswer about the jobs in `input`, an EstimateQuestion: see job_answers.h
///   --profile       a ProfileAnswer about the job in `input`, a ProfileQuestion: see job_answers.h
///   --micro         a MicroAnswer about the product or all-reduce in `input`, a MicroQuestion: see micro.h
///   --check-model   nothing, if the ONNX model in `input`, a ModelQuestion, can be imported
///
/// Errors: kUsage if the question is unknown; those of `compile`, `training_options`, `answer_estimate`,
/// `answer_profile`, `answer_micro` and `JobModel::parse`.
Answer answer_inquiry(const std::vector<std::string>& arguments, std::istream& input);

}  // namespace poprun
