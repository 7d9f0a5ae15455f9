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
  const std::string rounded = mebibytes_text(static_cast<std::uint64_t>(bytes));
  return rounded.ends_with("iB") ? fmt::format("{} ({} B)", rounded, grouped(bytes)) : rounded;
}

}  // namespace poprun
