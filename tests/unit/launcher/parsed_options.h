#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options/parse.h"

namespace poprun::launcher {

using Args = std::vector<std::string>;

/// Parses the options in `args` and in a train.cfg with the text `config`.
inline Result<Options> parse(Args args, std::string_view config = "") {
  args.emplace_back("train.cfg");
  return parse_options(args, config);
}

/// Returns the first line of the error's message. Tests of Mistakes check the other lines.
inline std::string error_of(Args args, std::string_view config = "") {
  const auto options = parse(std::move(args), config);
  return options ? "no error" : options.error().message.substr(0, options.error().message.find('\n'));
}

}  // namespace poprun::launcher
