#pragma once

#include <string>

#include "proto/profile.pb.h"

namespace poprun::launcher {

/// What a finished job tells its user: each figure with its unit and its clock. `result_folder` is
/// where the files are, `checkpoints` says what became of those, if any.
std::string summary(const proto::Profile& profile, const std::string& result_folder,
                    const std::string& checkpoints = "");

}  // namespace poprun::launcher
