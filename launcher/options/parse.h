#pragma once

#include <span>
#include <string>
#include <string_view>

#include "launcher/options/environment.h"
#include "launcher/options/options.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Parses `args` (without the program's name), the variables of `environment` (launcher/options/environment.h), and the
/// train.cfg that the arguments name. Errors: kUsage. The message has one line for each mistake, which states where it
/// is (the option, or file:line), what is wrong, and what is allowed or, for an unknown name, the nearest known name.
/// Below it, the line of the file is quoted.
Result<Options> parse_options(std::span<const std::string> args, const Environment& environment = {});

/// Parses `args` as above, but takes the text of train.cfg from `config_text`. Never crashes, whatever the text
/// (tests/fuzz).
Result<Options> parse_options(std::span<const std::string> args, std::string_view config_text,
                              const Environment& environment = {});

/// Returns the section [published] of a file. The file's other keys are neither checked nor used. Errors: kUsage if the
/// file cannot be read, if a line is wrong, or if there is no published value.
Result<Published> published_in(const std::string& file);

/// Formats all keys or, without `defaults`, only those that were set, as a train.cfg. A comment on each line states the
/// value's origin.
std::string resolved_config(const Options& options, bool defaults = true);

}  // namespace poprun::launcher
