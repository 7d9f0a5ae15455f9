#pragma once

#include <span>
#include <string>
#include <vector>

#include "launcher/options/written.h"
#include "replica/base/error.h"

namespace poprun::launcher {

struct CommandLine {
  std::vector<Written> written;  ///< In order.
  std::vector<std::string> positional;
};

/// Takes `args` apart, by names only: values are for the rows.
///
/// Errors
///   kUsage  an unknown option, with the one that may have been meant, or a value that is missing.
Result<CommandLine> parse_command_line(std::span<const std::string> args);

/// From the first word on that is neither an option nor the value of one; empty if there is none.
std::span<const std::string> words_after_options(std::span<const std::string> args);

}  // namespace poprun::launcher
