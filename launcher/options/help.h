#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option_table.h"

namespace poprun::launcher {

/// Returns the topics of --help: the sections of the table, "exit-codes" and "all".
std::vector<std::string> help_topics();

/// Returns the text of --help, at most 80 columns wide. `topic`: one of help_topics(), or empty for common options.
std::string help_text(std::string_view topic);

/// Returns the names of an option in the help: "-n, --num-replicas N", "--dry-run", "--help [SECTION]".
std::string names_of(const OptionRow& row);

/// Returns the help of a row, with its default.
std::string described(const OptionRow& row);

struct ExitCode {
  const char* codes;  ///< "64", or several codes.
  const char* meaning;
};

const std::vector<ExitCode>& exit_codes();

}  // namespace poprun::launcher
