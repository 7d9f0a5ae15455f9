#include "launcher/metrics/exposition.h"

#include <cmath>

#include <fmt/format.h>

namespace poprun::launcher {
namespace {

/// `text` in one line, and with backslashes before `quotes`, where it stands between them.
std::string escaped(std::string_view text, bool quotes) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
      continue;
    }
    if (c == '\\' || (quotes && c == '"')) {
      result += '\\';
    }
    result += c;
  }
  return result;
}

/// The shortest text that reads as the same number.
std::string number_text(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0 ? "+Inf" : "-Inf";
  }
  return fmt::format("{}", value);
}

}  // namespace

void Exposition::begin(std::string_view name, std::string_view help, std::string_view type) {
  name_ = name;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escaped(help, /*quotes=*/false), name,
                       type);
}

void Exposition::sample(double value, std::initializer_list<Label> labels) {
  text_ += name_;
  char before = '{';
  for (const Label& label : labels) {
    text_ += fmt::format("{}{}=\"{}\"", before, label.name, escaped(label.value, /*quotes=*/true));
    before = ',';
  }
  text_ += fmt::format("{} {}\n", labels.size() > 0 ? "}" : "", number_text(value));
}

}  // namespace poprun::launcher
