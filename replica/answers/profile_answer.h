#pragma once

#include <string>

#include "proto/inquiry.pb.h"
#include "replica/base/error.h"

namespace poprun {

/// The answer to `poprun-emu profile`: writes the serialised Profile of the compiled job, with its report, to the file
/// that the question names. A job that does not fit is not an error; its report says what it lacks. Appends the wall
/// time by activity to `text`, if requested.
///
/// Errors: kUsage if the device lacks the tile or the replica the IPU; kInfrastructure if the file cannot be written;
/// those of `compile_options`, `plan_program` and `match_weights_of`.
Status answer_profile(const proto::ProfileQuestion& question, std::string& text);

}  // namespace poprun
