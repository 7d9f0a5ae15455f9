#pragma once

#include <string>

#include "proto/inquiry.pb.h"
#include "replica/base/error.h"

namespace poprun {

/// Appends the answer to `poprun-emu estimate` to `text`; text before an error stays.
///
/// Errors: those of `compile_options`, `estimate`, `plan_program` and `JobModel::parse`; if a key is varied, they name
/// it with its value. A job that does not fit is not an error.
Status answer_estimate(const proto::EstimateQuestion& question, std::string& text);

}  // namespace poprun
