#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option_table.h"
#include "replica/base/error.h"

/// Words before train.cfg that say what to do with the job: `poprun-emu check train.cfg`. Without
/// one, the job runs. A train.cfg of such a name is still reachable as `./check`.
/// What a message says to somebody who wrote a name that does not exist.
namespace poprun::launcher {

/// One value somebody wrote, and where.
struct Written {
  const OptionRow* row;
  std::string value;
  std::string place;  ///< "--training.seed" or "train.cfg:7: seed", for messages.
  Origin origin;
};

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

struct SubcommandRow {
  Subcommand subcommand;
  std::string name;     ///< Also the section of its own options, `--NAME-...`.
  std::string meaning;  ///< For help; without a full stop.
  std::string result;   ///< For its page of help: what its exit codes mean.
};

/// In the order in which help shows them; without Subcommand::kRun, which has no word.
std::span<const SubcommandRow> subcommands();

/// Takes the subcommand off the words that are no options. Errors: kUsage, one is misspelt or
/// comes after train.cfg.
Result<Subcommand> take_subcommand(std::vector<std::string>& positional);

/// "poprun-emu check [options] train.cfg".
std::string usage_line(Subcommand subcommand);

/// Errors: kUsage, an option belongs to another subcommand.
Status check_subcommand(Subcommand subcommand, std::span<const Written> written);

/// What other launchers and frameworks call an option of ours, or nothing.
std::string_view called_elsewhere(std::string_view typed);

/// The message about an unknown option, as it was `typed`: what to use instead where it is one of
/// poprun, mpirun, torchrun or a framework, otherwise the options of that key, of a name or key
/// nearly so, or of a name that ends so: `--seed` is --training.seed.
std::string unknown_option(std::string_view typed);

}  // namespace poprun::launcher
