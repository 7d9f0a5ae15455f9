#pragma once

#include <span>
#include <string>
#include <string_view>

#include "launcher/options/options.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Parses `args` (without the program's name) and the train.cfg they name.
///
/// Errors
///   kUsage  one line: where (option, or file:line), what, what is allowed, and for an unknown name
///           the nearest known one.
Result<Options> parse_options(std::span<const std::string> args);

/// The same with the text of train.cfg given. Never crashes, whatever the text (tests/fuzz).
Result<Options> parse_options(std::span<const std::string> args, std::string_view config_text);

/// All values of `[section]` keys as a train.cfg, each marked with where it comes from.
std::string resolved_config(const Options& options);

}  // namespace poprun::launcher
