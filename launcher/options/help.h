#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option_table.h"

namespace poprun::launcher {

/// Returns the topics of --help: the sections of the option table, "environment", "exit-codes" and "all".
std::vector<std::string> help_topics();

/// Returns the text of --help, at most 80 columns wide. `topic` is one of help_topics(), or "" for the common options.
std::string help_text(std::string_view topic);

/// Returns the names of an option as the help shows them: "-n, --num-replicas N", "--dry-run", "--help [SECTION]".
std::string names_of(const OptionRow& row);

/// Returns the help text of a row, including its default.
std::string described(const OptionRow& row);

struct ExitCode {
  const char* codes;  ///< "64", or a list of codes.
  const char* meaning;
};

const std::vector<ExitCode>& exit_codes();

}  // namespace poprun::launcher
