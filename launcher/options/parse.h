#pragma once

#include <span>
#include <string>
#include <string_view>

#include "launcher/options/options.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Parses `args` (without the program's name) and the train.cfg that they name. Errors: kUsage, in one line with the
/// place (option, or file:line), what is wrong, what is allowed and, for an unknown name, the nearest known one.
Result<Options> parse_options(std::span<const std::string> args);

/// Does the same, with `config_text` as the text of train.cfg. Never crashes, whatever the text (tests/fuzz).
Result<Options> parse_options(std::span<const std::string> args, std::string_view config_text);

/// Formats all values of `[section]` keys as a train.cfg, each with a comment on its origin.
std::string resolved_config(const Options& options);

}  // namespace poprun::launcher
