#include "replica/compiler/planner/splits.h"

#include <fmt/format.h>

namespace poprun::planner {

std::string to_text(const Splits& s) {
  std::string text;
  const auto add = [&text](std::int64_t parts, std::string_view what) {
    if (parts > 1) {
      text += fmt::format("{}{} {}", text.empty() ? "" : " x ", what, parts);
    }
  };
  add(s.groups, "groups");
  add(s.inputs, "inputs");
  add(s.kernel, "kernel");
  add(s.batch, "batch");
  add(s.rows, "rows");
  add(s.columns, "columns");
  add(s.outputs, "outputs");
  if (text.empty()) {
    text = "1 tile";
  }
  if (s.serial_inputs > 1) {
    text += fmt::format(", {} steps of inputs", s.serial_inputs);
  }
  if (s.serial_outputs > 1) {
    text += fmt::format(", {} steps of outputs", s.serial_outputs);
  }
  return text;
}

}  // namespace poprun::planner
