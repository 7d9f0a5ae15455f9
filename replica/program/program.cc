#include "replica/program/program.h"

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun {

const proto::Function* find_function(const Program& program, const std::string& name) {
  for (const proto::Function& function : program.functions()) {
    if (function.name() == name) {
      return &function;
    }
  }
  return nullptr;
}

std::string bytes_text(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000) {
    return fmt::format("{:.2f} GB ({} B)", value / 1e9, grouped(bytes));
  }
  if (bytes >= 1'000'000) {
    return fmt::format("{:.1f} MB ({} B)", value / 1e6, grouped(bytes));
  }
  if (bytes >= 1'000) {
    return fmt::format("{:.1f} kB ({} B)", value / 1e3, grouped(bytes));
  }
  return fmt::format("{} B", bytes);
}

}  // namespace poprun
