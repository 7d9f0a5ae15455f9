#pragma once

#include <span>
#include <string>
#include <string_view>

#include "launcher/options/command_line.h"
#include "launcher/options/options.h"
#include "replica/base/error.h"

/// Requests for information, which need no train.cfg and run no job.
namespace poprun::launcher {

/// Handles requests for information. Removes their words from `line`. Returns whether there is such a request. Errors:
/// kUsage if a topic of the help is unknown, or if a word follows that does not belong to the request.
Result<bool> is_answered_without_job(CommandLine& line, Options& options);

}  // namespace poprun::launcher
