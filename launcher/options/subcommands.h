#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/written.h"
#include "replica/base/error.h"

/// Words before train.cfg that say what to do with the job: `poprun-emu check train.cfg`. Without
/// one, the job runs. A train.cfg of such a name is still reachable as `./check`.
namespace poprun::launcher {

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

}  // namespace poprun::launcher
