#include "launcher/options/subcommands.h"

#include <algorithm>

#include <fmt/format.h>

#include "launcher/options/option_table.h"

namespace poprun::launcher {

std::span<const SubcommandRow> subcommands() {
  static const std::vector<SubcommandRow> all = {
      {Subcommand::kCheck, "check",
       "Run a few steps plain and as every kind of pipeline; compare the bits"}};
  return all;
}

Subcommand take_subcommand(std::vector<std::string>& positional) {
  if (positional.empty()) {
    return Subcommand::kRun;
  }
  const auto row = std::ranges::find(subcommands(), positional[0], &SubcommandRow::name);
  if (row == subcommands().end()) {
    return Subcommand::kRun;
  }
  positional.erase(positional.begin());
  return row->subcommand;
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
