#include "replica/program/program.h"

#include <algorithm>

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

bool lives_at(const proto::Tensor& tensor, std::uint32_t step) {
  return std::ranges::any_of(tensor.lives(), [step](const proto::Span& span) {
    return span.first() <= step && step <= span.last();
  });
}

std::string bytes_text(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value >= 0x1p30) {
    return fmt::format("{:.2f} GiB ({} B)", value / 0x1p30, grouped(bytes));
  }
  if (value >= 0x1p20) {
    return fmt::format("{:.1f} MiB ({} B)", value / 0x1p20, grouped(bytes));
  }
  if (value >= 0x1p10) {
    return fmt::format("{:.1f} KiB ({} B)", value / 0x1p10, grouped(bytes));
  }
  return fmt::format("{} B", bytes);
}

}  // namespace poprun
