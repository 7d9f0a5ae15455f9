#include "replica/program/program.h"

#include <fmt/format.h>

namespace poprun {
namespace {

std::string with_commas(std::int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) {
      text += ',';
    }
    text += digits[i];
  }
  return text;
}

}  // namespace

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
    return fmt::format("{:.2f} GB ({} B)", value / 1e9, with_commas(bytes));
  }
  if (bytes >= 1'000'000) {
    return fmt::format("{:.1f} MB ({} B)", value / 1e6, with_commas(bytes));
  }
  if (bytes >= 1'000) {
    return fmt::format("{:.1f} kB ({} B)", value / 1e3, with_commas(bytes));
  }
  return fmt::format("{} B", bytes);
}

}  // namespace poprun
