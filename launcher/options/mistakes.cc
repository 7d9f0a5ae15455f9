#include "launcher/options/mistakes.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <google/protobuf/stubs/common.h>

#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr std::size_t kColumnsMax = 160;

std::string_view line_of(std::string_view text, std::size_t line) {
  for (; line > 1; --line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) {
      return {};
    }
    text.remove_prefix(end + 1);
  }
  text = text.substr(0, text.find('\n'));
  return text.substr(0, text.find_last_not_of(" \t\r") + 1);
}

/// Returns the part of `line` to mark. Falls back to the whole line without its comment.
std::string_view marked(std::string_view line, Part part) {
  const std::string_view content = trimmed(line.substr(0, line.find('#')));
  const std::size_t equals = content.find('=');
  if (part == Part::kLine || equals == std::string_view::npos) {
    return content;
  }
  const std::string_view value = trimmed(content.substr(equals + 1));
  return part == Part::kKey ? trimmed(content.substr(0, equals)) : value.empty() ? content : value;
}

/// Returns the number of characters in `text`, which is UTF-8.
std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

/// Returns whether `message` names the option or key `name`: it contains the name, and no longer one around it.
bool names(std::string_view message, std::string_view name) {
  const auto belongs = [](char c) { return c == '-' || c == '.' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  for (std::size_t at = message.find(name); at != std::string_view::npos; at = message.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    const bool begins = at == 0 || !belongs(message[at - 1]) || message.substr(0, at).ends_with("--");
    const bool ends = end == message.size() || !belongs(message[end]) || message[end] == '.';
    if (begins && ends) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string Mistakes::quoted(std::size_t line, Part part) const {
  const std::string_view whole = line_of(text_, line);
  if (whole.empty() || !google::protobuf::internal::IsStructurallyValidUTF8(whole)) {
    return "";
  }
  const std::string_view wrong = marked(whole, part);
  const std::size_t before = characters(whole.substr(0, static_cast<std::size_t>(wrong.data() - whole.data())));
  std::string shown(whole);
  for (char& c : shown) {
    c = c == '\t' ? ' ' : static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  }
  if (characters(shown) > kColumnsMax || wrong.empty()) {
    return "";  // The message already contains the beginning of a long value.
  }
  const std::string number = std::to_string(line);
  return fmt::format("\n  {} | {}\n  {:{}} | {:{}}{:^>{}}", number, shown, "", number.size(), "", before, "",
                     characters(wrong));
}

void Mistakes::add(std::string message) {
  mistakes_.push_back({0, std::move(message)});
}

void Mistakes::add(std::size_t line, Part part, std::string_view message) {
  mistakes_.push_back({line, fmt::format("{}:{}: {}{}", file_, line, message, quoted(line, part))});
}

void Mistakes::add(const Written& written, std::string message) {
  mistakes_.push_back(
      {written.line, message + (written.line == 0 ? std::string{} : quoted(written.line, Part::kValue))});
}

void Mistakes::add_rule(std::string message, std::span<const Written> written) {
  std::string lines;
  for (const Written& w : written) {
    if (w.origin == Origin::kFile && names(message, w.row->name)) {
      lines += fmt::format("\n --> {}:{}{}", file_, w.line, quoted(w.line, Part::kValue));
    }
  }
  mistakes_.push_back({0, std::move(message) + lines});
}

Status Mistakes::status() const {
  if (mistakes_.empty()) {
    return {};
  }
  std::vector<Mistake> sorted = mistakes_;
  std::ranges::stable_sort(sorted, {}, &Mistake::line);
  std::string text;
  for (std::size_t i = 0; i < std::min(sorted.size(), kShownMax); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : "\n", sorted[i].text);
  }
  if (sorted.size() > kShownMax) {
    text += fmt::format("\n... and {} more", sorted.size() - kShownMax);
  }
  return fail(ErrorCode::kUsage, std::move(text));
}

}  // namespace poprun::launcher
