#include "replica/base/text.h"

#include <cmath>

#include <fmt/format.h>

namespace poprun {

std::string shortened(std::string_view name, std::size_t width) {
  if (name.size() <= width) {
    return std::string{name};
  }
  const std::size_t front = (width - 2) / 2;
  return fmt::format("{}..{}", name.substr(0, front),
                     name.substr(name.size() - (width - 2 - front)));
}

std::string group_digits(std::string digits) {
  const std::size_t first = digits.starts_with('-') ? 1 : 0;
  for (std::size_t place = digits.size(); place > first + 3; place -= 3) {
    digits.insert(place - 3, ",");
  }
  return digits;
}

std::string counted(std::uint64_t number, std::string_view one) {
  return fmt::format("{} {}{}", grouped(number), one, number == 1 ? "" : "s");
}

std::string mebibytes_text(std::uint64_t bytes) {
  constexpr std::uint64_t kKibibyte = 1024;
  if (bytes < kKibibyte) {
    return fmt::format("{} B", bytes);
  }
  const auto tenths = static_cast<std::uint64_t>(std::llrint(10 * to_mebibytes(bytes)));
  return tenths == 0 ? fmt::format("{:.1f} KiB", static_cast<double>(bytes) / kKibibyte)
                     : fmt::format("{}.{} MiB", grouped(tenths / 10), tenths % 10);
}

std::string duration_text(double seconds) {
  if (seconds >= 1) {
    return fmt::format("{:.2f} s", seconds);
  }
  return seconds >= 1e-3 ? fmt::format("{:.3f} ms", seconds * 1e3)
                         : fmt::format("{:.1f} us", seconds * 1e6);
}

}  // namespace poprun
