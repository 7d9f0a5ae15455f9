#include "launcher/options/subcommands.h"

#include <algorithm>

#include <fmt/format.h>

#include "launcher/options/option_table.h"
#include "replica/base/nearest.h"

namespace poprun::launcher {

std::span<const SubcommandRow> subcommands() {
  static const std::vector<SubcommandRow> all = {
      {Subcommand::kCheck, "check",
       "Run a few steps plain and as every kind of pipeline; compare the bits",
       "Ends with 0 if all runs that were compared are equal, with 70 if one is not, and with 64 "
       "or 86 if nothing could be compared (--help exit-codes)."},
      {Subcommand::kEstimate, "estimate",
       "Show how much memory the job needs, and on how many IPUs, without compiling it",
       "Counts parameters by kind of block, activations and optimiser state, first by the formulas "
       "of Graphcore's Memory and Performance Optimisation, then by the job's own types. Ends with "
       "0 whether the job fits or not; --dry-run tells that."},
      {Subcommand::kProfile, "profile",
       "Show where the compiled job's memory and device time go, and run a few steps",
       "Writes profile.pb and profile.json to --output-dir (default: poprun-emu-profile). Ends "
       "with "
       "86 where the job does not fit, after its profile. With --compare A B, two such files are "
       "compared, and no train.cfg is needed."}};
  return all;
}

Result<Subcommand> take_subcommand(std::vector<std::string>& positional) {
  if (positional.empty()) {
    return Subcommand::kRun;
  }
  const auto row = std::ranges::find(subcommands(), positional[0], &SubcommandRow::name);
  if (row != subcommands().end()) {
    positional.erase(positional.begin());
    if (!positional.empty() && positional[0] == row->name) {
      return fail(ErrorCode::kUsage,
                  fmt::format("the subcommand {0} is given twice; a file of that name would be "
                              "./{0}; usage: {1}",
                              row->name, usage_line(row->subcommand)));
    }
    return row->subcommand;
  }
  if (positional.size() == 1) {
    return Subcommand::kRun;  // A file, whatever its name is like.
  }
  for (const SubcommandRow& meant : subcommands()) {
    const std::string names[] = {meant.name};
    if (!nearest(positional[0], names).empty()) {
      return fail(ErrorCode::kUsage,
                  fmt::format("unknown subcommand '{}'; {} usage: {}", positional[0],
                              suggestion(positional[0], names), usage_line(meant.subcommand)));
    }
    if (std::ranges::count(positional, meant.name) > 0) {
      return fail(ErrorCode::kUsage,
                  fmt::format("the subcommand {} comes before train.cfg; usage: {}", meant.name,
                              usage_line(meant.subcommand)));
    }
  }
  return Subcommand::kRun;
}

std::string usage_line(Subcommand subcommand) {
  const auto row = std::ranges::find(subcommands(), subcommand, &SubcommandRow::subcommand);
  return fmt::format("poprun-emu {}[options] train.cfg",
                     row == subcommands().end() ? "" : row->name + " ");
}

Status check_subcommand(Subcommand subcommand, std::span<const Written> written) {
  for (const Written& w : written) {
    const auto owner = std::ranges::find(subcommands(), w.row->section, &SubcommandRow::name);
    if (owner != subcommands().end() && owner->subcommand != subcommand) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{} belongs to the subcommand {}; usage: {}", w.place, owner->name,
                              usage_line(owner->subcommand)));
    }
  }
  return {};
}

}  // namespace poprun::launcher
