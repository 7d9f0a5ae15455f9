#pragma once

#include <string>

#include "launcher/options/options.h"

namespace poprun::launcher {

/// Returns the command that a user probably wants after this one has succeeded, or "" if there is none. A job is
/// estimated, compiled, run and profiled, in this order:
///
///     estimate --> --dry-run --> the job --> profile
///     check --> profile --> the job
std::string next_command(const Options& options);

}  // namespace poprun::launcher
