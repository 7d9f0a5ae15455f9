#include "launcher/options/option_table.h"

#include <algorithm>

#include "launcher/options/rows.h"

namespace poprun::launcher {

std::span<const OptionRow> option_table() {
  static const Rows table = joined({command_rows(), job_rows(), compatibility_rows()});
  return table;
}

const OptionRow* find_row(std::string_view name) {
  const auto row = std::ranges::find(option_table(), name, &OptionRow::name);
  return row == option_table().end() ? nullptr : &*row;
}

}  // namespace poprun::launcher
