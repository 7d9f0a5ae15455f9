#pragma once

#include "proto/answers.pb.h"
#include "proto/inquiry.pb.h"
#include "replica/base/error.h"

namespace poprun {

/// Compiles the job, and divides the device time of a step by what the IPUs of a replica do. A job that does not fit is
/// not an error, nor is one with more samples per step than the dataset has. Leaves `scaling` and `efficiency` unset,
/// which depend on other jobs. Cost: one compilation, whatever the number of replicas. Errors: those of
/// `compile_options`, `plan_program` and `JobModel::parse`.
Status answer_scale(const proto::CompileQuestion& job, proto::ScaledJob& answer);

}  // namespace poprun
