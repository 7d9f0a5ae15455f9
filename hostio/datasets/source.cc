#include "hostio/datasets/source.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"

namespace poprun::hostio {

Result<Parameters> parse_parameters(std::string_view list, std::string_view what) {
  Parameters parameters;
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    const std::size_t equals = entry.find('=');
    if (equals == 0 || equals == std::string_view::npos) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: expected comma-separated key=value pairs, found \"{}\"", what, entry));
    }
    const std::string key{entry.substr(0, equals)};
    if (!parameters.emplace(key, entry.substr(equals + 1)).second) {
      return fail(ErrorCode::kUsage, fmt::format("{}: {} is given twice; remove one of the two", what, key));
    }
    list.remove_prefix(std::min(entry.size() + 1, list.size()));
  }
  return parameters;
}

Result<Source> Source::parse(std::string_view source) {
  const std::size_t mark = source.rfind('?');
  const std::string_view list = mark == std::string_view::npos ? "" : source.substr(mark + 1);
  // The `?` is part of a path if a slash or text without `=` follows it: parameters contain `=` and no slash.
  const bool in_path =
      list.find('/') != std::string_view::npos || (!list.empty() && list.find('=') == std::string_view::npos);
  if (mark == std::string_view::npos || in_path) {
    return Source{.text = std::string{source}, .parameters = {}, .scope = {}};
  }
  POPRUN_ASSIGN(auto parameters, parse_parameters(list, source));
  return Source{.text = std::string{source.substr(0, mark)}, .parameters = std::move(parameters), .scope = {}};
}

std::string source_with(std::string_view text, const std::vector<std::string>& parameters) {
  return parameters.empty() && text.find('?') == std::string_view::npos
             ? std::string{text}
             : fmt::format("{}?{}", text, fmt::join(parameters, ","));
}

SplitNames split_names(std::string_view text) {
  constexpr std::string_view kTest = ",test=";
  const std::size_t at = text.rfind(kTest);
  if (at == std::string_view::npos) {
    return {.train = std::string{text}, .test = std::nullopt};
  }
  return {.train = std::string{text.substr(0, at)}, .test = std::string{text.substr(at + kTest.size())}};
}

Result<double> test_fraction(const Source& source) {
  constexpr double kUsual = 0.05;  // The same as for text (token_windows.h).
  constexpr double kFractionMax = 0.9;
  const auto found = source.parameters.find("test-fraction");
  if (found == source.parameters.end()) {
    return kUsual;
  }
  const std::string& text = found->second;
  const auto value = parse_number<double>(text);
  if (!value || !(*value >= 0 && *value <= kFractionMax)) {
    return fail(ErrorCode::kUsage,
                fmt::format("data.test-fraction = {} is not a number from 0 to {}", text, kFractionMax));
  }
  return *value;
}

std::uint64_t test_items_of(std::uint64_t items, double fraction) {
  if (fraction == 0 || items < 2) {
    return 0;
  }
  const auto wished = static_cast<std::uint64_t>(static_cast<double>(items) * fraction);
  return std::clamp<std::uint64_t>(wished, 1, items - 1);
}

Result<std::uint64_t> integer_parameter(const Parameters& parameters, const std::string& key, std::uint64_t fallback,
                                        std::uint64_t least, std::uint64_t most) {
  const auto found = parameters.find(key);
  if (found == parameters.end()) {
    return fallback;
  }
  const std::string& text = found->second;
  const auto value = parse_number<std::uint64_t>(text);
  if (!value || *value < least || *value > most) {
    return fail(ErrorCode::kUsage,
                fmt::format("data.source: {} = {} is not an integer from {} to {}", key, text, least, most));
  }
  return *value;
}

Result<double> real_parameter(const Source& source, const std::string& key, double fallback) {
  const auto found = source.parameters.find(key);
  if (found == source.parameters.end()) {
    return fallback;
  }
  const std::string& text = found->second;
  const auto value = parse_number<double>(text);
  if (!value || !std::isfinite(*value) || (key == "deviation" && *value <= 0)) {
    return fail(ErrorCode::kUsage,
                fmt::format("data.{} = {} is not a{} number", key, text, key == "deviation" ? " positive" : ""));
  }
  return *value;
}

}  // namespace poprun::hostio
