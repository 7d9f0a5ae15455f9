#pragma once

#include "proto/answers.pb.h"
#include "proto/inquiry.pb.h"
#include "replica/base/error.h"

namespace poprun {

/// Compiles the job, and breaks the device time of a step down by activity. It is not an error if the job does not fit,
/// or if a step has more samples than the dataset. Sets the fields from batch_sizes onwards, except for `efficiency`,
/// which depends on other jobs. Cost: one compilation, whatever the number of replicas. Errors: those of
/// `compile_options`, `plan_program` and `JobModel::parse`.
Status answer_scale(const proto::CompileQuestion& job, proto::ScaledJob& answer);

}  // namespace poprun
