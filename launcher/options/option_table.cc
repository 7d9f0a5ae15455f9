#include "launcher/options/option_table.h"

#include <algorithm>

#include <fmt/format.h>

#include "launcher/options/rows.h"

namespace poprun::launcher {

std::span<const OptionRow> option_table() {
  static const Rows table = joined({command_rows(), job_rows(), compatibility_rows()});
  return table;
}

std::span<const Section> sections() {
  static const std::vector<Section> all = {{"general", "General"},
                                           {"placement", "Placement"},
                                           {"hosts", "Hosts and MPI"},
                                           {"data-server", "Data server"},
                                           {"output", "Output"},
                                           {"checkpoints", "Checkpoints"},
                                           {"metrics", "Metrics"},
                                           {"timeouts", "Timeouts"},
                                           {"check", "Subcommand check"},
                                           {"estimate", "Subcommand estimate"},
                                           {"profile", "Subcommand profile"},
                                           {"model", "Model"},
                                           {"data", "Data"},
                                           {"training", "Training"},
                                           {"pipeline", "Pipeline"},
                                           {"memory", "Memory"},
                                           {"device", "Device"},
                                           {"report", "Report"},
                                           {"poprun", "Accepted from poprun, without effect"}};
  return all;
}

const OptionRow* find_row(std::string_view name) {
  const std::string key_name = fmt::format("{}.name", name);
  const auto row = std::ranges::find_if(option_table(), [&](const OptionRow& candidate) {
    return candidate.name == name || candidate.name == key_name;
  });
  return row == option_table().end() ? nullptr : &*row;
}

}  // namespace poprun::launcher
