#include "launcher/screen/styles.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

namespace poprun::launcher {
namespace {

constexpr std::string_view kUsage = "Usage:";

std::string emphasised_line(std::string_view line) {
  const auto begin = [&](std::size_t size, Style style) {
    return styled(style, line.substr(0, size)) + std::string(line.substr(size));
  };
  if (line.starts_with("fits:")) {
    return begin(4, Style::kGood);
  }
  if (constexpr std::string_view kBad = "does not fit"; line.starts_with(kBad)) {
    return begin(kBad.size(), Style::kBad);
  }
  if (line.starts_with(kUsage)) {
    return begin(kUsage.size(), Style::kHeading);
  }
  const bool is_heading = line.starts_with("# ") || (line.ends_with(':') && line.front() != ' ');
  return is_heading ? styled(Style::kHeading, line) : std::string(line);
}

}  // namespace

std::string styled(Style style, std::string_view text) {
  const char* codes = style == Style::kGood ? "1;32" : style == Style::kBad ? "1;31" : "1";
  return fmt::format("\x1b[{}m{}\x1b[0m", codes, text);
}

std::string emphasised(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    result += emphasised_line(text.substr(0, end));
    result += text.substr(end, 1);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

}  // namespace poprun::launcher
