#pragma once

#include <memory>
#include <string>

#include "proto/answers.pb.h"
#include "proto/inquiry.pb.h"
#include "replica/base/error.h"
#include "replica/compilation/host_weights.h"
#include "replica/program/program.h"

/// Answers the questions `estimate` and `profile`, which are about jobs.
namespace poprun {

/// If the configuration names a file of initial weights, matches the file with the Program. Errors: those of
/// match_initial_weights.
Result<WeightMatch> match_weights_of(const proto::CompileQuestion& job, const Program& program);

/// Estimates the memory that the jobs need. A job that does not fit is not an error. On an error, `answer` is empty.
/// Errors: those of `compile_options`, `estimate`, `plan_program` and `JobModel::parse`. If a key is varied, the error
/// names the key and its value.
Status answer_estimate(const proto::EstimateQuestion& question, proto::EstimateAnswer& answer);

/// Compiles the job and builds its Profile, including the report. A job that does not fit is not an error; its report
/// shows how much memory is missing. Errors: kUsage if the device does not have the tile, or the replica does not have
/// the IPU; those of `compile_options`, `plan_program` and `match_weights_of`.
Status answer_profile(const proto::ProfileQuestion& question, proto::ProfileAnswer& answer);

}  // namespace poprun
