#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option_table.h"
#include "replica/base/error.h"

/// Splits the command line into options, subcommand and files. A subcommand is a word before train.cfg that says what
/// to do with the job, as in `poprun-emu check train.cfg`; by default, the job runs. `./check` is always a file.
namespace poprun::launcher {

/// A value, and the place where the user specified it.
struct Written {
  const OptionRow* row;
  std::string value;
  std::string place;  ///< "--training.seed" or "train.cfg:7: seed", for messages.
  Origin origin;
  std::size_t line = 0;  ///< Line of train.cfg, counted from 1; 0 if it is not in a file.
};

struct CommandLine {
  std::vector<Written> written;  ///< In the order given.
  std::vector<std::string> positional;
};

/// Splits `args` into options and other words. This examines only names; the rows check the values later. Errors:
/// kUsage if options are unknown (the message suggests known ones) or lack their values. The message has one line for
/// each of them.
Result<CommandLine> parse_command_line(std::span<const std::string> args);

/// Returns the first word that is neither an option nor an option's value, and all words after it. The result may be
/// empty.
std::span<const std::string> words_after_options(std::span<const std::string> args);

struct SubcommandRow {
  Subcommand subcommand;
  std::string name;     ///< Also the name of the help section on its own options.
  std::string brief;    ///< One line for the list of subcommands, without a final full stop.
  std::string meaning;  ///< Text for the help, without a final full stop.
  std::string result;   ///< The subcommand's output and exit codes, for its help page.
};

/// Returns all subcommands, in the order of the help, except Subcommand::kRun, which has no word of its own.
std::span<const SubcommandRow> subcommands();

/// A word that asks for information, in the place of a subcommand. It means the same as an option: `poprun-emu models`
/// is `poprun-emu --list-models`.
struct InformationRow {
  std::string name;
  std::string meaning;  ///< Text for the help, without a final full stop.
};

/// Returns all words that ask for information, in the order of the help.
std::span<const InformationRow> information();

bool is_information(std::string_view word);

/// Removes the subcommand from `positional` and returns it. Errors: kUsage if it is misspelt or comes after train.cfg.
Result<Subcommand> take_subcommand(std::vector<std::string>& positional);

/// Returns "poprun-emu check [options] train.cfg".
std::string usage_line(Subcommand subcommand);

/// Returns the only subcommand that takes an option, or null if every subcommand may take it.
const SubcommandRow* owner_of(const OptionRow& row);

/// Checks that all options apply to the subcommand. Errors: kUsage if one belongs to a different subcommand.
Status check_subcommand(Subcommand subcommand, std::span<const Written> written);

/// Returns the name of our option that corresponds to `typed`, an option of another launcher or framework. Returns ""
/// if `typed` is not such an option.
std::string_view called_elsewhere(std::string_view typed);

/// Returns the message for an unknown option. If `typed` is an option of poprun, mpirun, torchrun or a framework, the
/// message says what to use instead. Otherwise, it lists the options whose key is `typed`, whose name or key is
/// similar, or whose name ends in `typed`. For `--seed`, for example, it lists --training.seed.
std::string unknown_option(std::string_view typed);

}  // namespace poprun::launcher
