#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option_table.h"
#include "replica/base/error.h"

/// Subcommands: words before train.cfg that say what to do with the job, as `poprun-emu check train.cfg`. Without one,
/// the job runs. A train.cfg with the name of a subcommand is still reachable as `./check`. Also the message for an
/// unknown name.
namespace poprun::launcher {

/// One value that the user wrote, and where.
struct Written {
  const OptionRow* row;
  std::string value;
  std::string place;  ///< "--training.seed" or "train.cfg:7: seed", for messages.
  Origin origin;
};

struct CommandLine {
  std::vector<Written> written;  ///< In the order given.
  std::vector<std::string> positional;
};

/// Splits `args` into options and other words, by names only; the rows check the values.
///
/// Errors
///   kUsage  an unknown option, with the one that may have been meant, or a missing value.
Result<CommandLine> parse_command_line(std::span<const std::string> args);

/// The words from the first one that is neither an option nor the value of one; empty if there is none.
std::span<const std::string> words_after_options(std::span<const std::string> args);

struct SubcommandRow {
  Subcommand subcommand;
  std::string name;     ///< Also the section of its own options, `--NAME-...`.
  std::string meaning;  ///< For help; without a final full stop.
  std::string result;   ///< For its help page: the meaning of its exit codes.
};

/// All subcommands in the order of the help, except Subcommand::kRun, which has no word.
std::span<const SubcommandRow> subcommands();

/// Removes the subcommand from the words that are not options. Errors: kUsage if it is misspelt or comes after
/// train.cfg.
Result<Subcommand> take_subcommand(std::vector<std::string>& positional);

/// Returns "poprun-emu check [options] train.cfg".
std::string usage_line(Subcommand subcommand);

/// Errors: kUsage if an option belongs to another subcommand.
Status check_subcommand(Subcommand subcommand, std::span<const Written> written);

/// The names that other launchers and frameworks use for one of our options; empty if `typed` is not one of them.
std::string_view called_elsewhere(std::string_view typed);

/// The message about an unknown option, as it was `typed`. If it is an option of poprun, mpirun, torchrun or a
/// framework, it says what to use instead; otherwise it lists the options with that key, with a similar name or key, or
/// whose name ends in it: for `--seed`, --training.seed.
std::string unknown_option(std::string_view typed);

}  // namespace poprun::launcher
