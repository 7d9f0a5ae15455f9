#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/command_line.h"

/// Options that are set by environment variables: --output-dir by POPRUN_EMU_OUTPUT_DIR, and the key seed of [training]
/// by POPRUN_EMU_TRAINING_SEED. They override train.cfg, and the command line overrides them.
namespace poprun::launcher {

/// Variables of the form `NAME=VALUE`.
using Environment = std::vector<std::string>;

/// Returns the environment of this process.
Environment environment_here();

/// Returns the value of --color, even if other words are wrong: the last one in `args`, or else that of the
/// environment, or else "auto".
std::string colour_choice(std::span<const std::string> args, const Environment& environment);

/// Returns the name of the variable that sets a row: "POPRUN_EMU_TRAINING_SEED".
std::string variable_of(const OptionRow& row);

/// Returns whether a variable can set the row. Requests for information, such as --help, are made on the command line.
bool has_variable(const OptionRow& row);

struct FromEnvironment {
  std::vector<Written> written;    ///< In the order of the environment.
  std::vector<std::string> notes;  ///< One for each variable that resembles an option but sets none.
};

/// Returns the values that the environment sets, without those that `command_line` overrides. Ignores variables without
/// a value, those that other parts of poprun-emu read, and the addresses of services that Kubernetes provides.
FromEnvironment written_in_environment(const Environment& environment, std::span<const Written> command_line);

}  // namespace poprun::launcher
