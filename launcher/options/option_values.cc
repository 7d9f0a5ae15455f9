#include "launcher/options/option_values.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/stubs/common.h>

#include "launcher/options/shell_words.h"
#include "replica/base/pattern.h"
#include "replica/base/text.h"
#include "replica/device/calibration.h"

namespace poprun::launcher {
namespace {

tl::unexpected<std::string> allowed(std::string what) {
  return tl::unexpected<std::string>{std::move(what)};
}

/// Returns a hint that lists the numbers of a range such as "2-4", or "" for any other text.
std::string spelt_out(std::string_view text, std::int64_t least, std::int64_t most) {
  constexpr std::int64_t kLongest = 16;
  const std::size_t hyphen = text.find('-');
  if (hyphen == std::string_view::npos) {
    return "";
  }
  const auto first = parse_number<std::int64_t>(text.substr(0, hyphen));
  const auto last = parse_number<std::int64_t>(text.substr(hyphen + 1));
  if (!first || !last || *first < least || *last > most || *first >= *last || *last - *first >= kLongest) {
    return "";
  }
  std::vector<std::int64_t> values;
  for (std::int64_t value = *first; value <= *last; ++value) {
    values.push_back(value);
  }
  return fmt::format("; write out each number: {}", fmt::join(values, " "));
}

std::vector<std::string_view> names_of_host_calls() {
  std::vector<std::string_view> names;
  for (const FittedNumber& call : host_calls()) {
    names.push_back(call.name);
  }
  return names;
}

}  // namespace

Read<std::uint64_t> Integer::read(const std::string& text) const {
  const std::optional<std::uint64_t> value = parse_number<std::uint64_t>(text);
  if (!value || *value < least || *value > most) {
    return allowed(fmt::format("an integer from {} to {}", least, most));
  }
  return *value;
}

Read<double> Real::read(const std::string& text) const {
  const std::optional<double> value = parse_number<double>(text);
  const bool low = value && (*value < least || (*value == least && !least_allowed));
  const bool high = value && (*value > most || (*value == most && !most_allowed));
  if (!value || !std::isfinite(*value) || low || high) {
    return allowed(fmt::format("a number {} {} and {} {}", least_allowed ? "of at least" : "above", least,
                               most_allowed ? "at most" : "below", most));
  }
  return *value;
}

Read<bool> Boolean::read(const std::string& text) const {
  const std::optional<bool> value = parse_boolean(text);
  if (!value) {
    return allowed("yes, no, on, off, true, false, 1 or 0");
  }
  return *value;
}

Read<std::uint32_t> Verbosity::read(const std::string& text) const {
  const std::optional<bool> said = parse_boolean(text);
  if (!said && text != "2") {
    return allowed("0, 1 or 2");
  }
  return said ? static_cast<std::uint32_t>(*said) : 2;
}

Read<std::string> Choice::read(const std::string& text) const {
  if (std::ranges::find(choices, text) == choices.end()) {
    return allowed(fmt::format("{}", fmt::join(choices, ", ")));
  }
  return text;
}

Read<std::string> HostCall::read(const std::string& text) const {
  if (!is_framework(text) && !Real{0, 3600}.read(text)) {
    return allowed(fmt::format("{} or a number of seconds from 0 to 3600", fmt::join(names_of_host_calls(), ", ")));
  }
  return text == "none" ? "" : text;
}

Read<std::string> Text::read(const std::string& text) const {
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  if (text.empty() || text.size() > 4096 || std::ranges::any_of(text, control) ||
      !google::protobuf::internal::IsStructurallyValidUTF8(text)) {
    return allowed("1 to 4096 printable characters in UTF-8");
  }
  return text;
}

Read<std::string> Regex::read(const std::string& text) const {
  if (Read<std::string> printable = Text{}.read(text); !printable) {
    return printable;
  }
  if (const Result<Pattern> pattern = Pattern::parse(text); !pattern) {
    return allowed(fmt::format("an ECMAScript regular expression ({})", pattern.error().message));
  }
  return text;
}

Read<std::vector<std::string>> Words::read(const std::string& text) const {
  Result<std::vector<std::string>> words = split_shell_words(text);
  if (!words) {
    return allowed("words separated by blanks, quoted as in a shell (" + words.error().message + ")");
  }
  return *std::move(words);
}

Read<std::vector<std::string>> Names::read(const std::string& text) const {
  Read<std::vector<std::string>> names = Words{}.read(text);
  for (std::size_t k = 0; names && k < names->size(); ++k) {
    if (const Read<std::string> name = Text{}.read((*names)[k]); !name) {
      return allowed(fmt::format("names separated by blanks, each of {}", name.error()));
    }
  }
  return names;
}

Read<std::vector<std::int64_t>> Integers::read(const std::string& text) const {
  constexpr std::size_t kMost = 256;
  std::string blanks = text;
  std::ranges::replace(blanks, ',', ' ');
  std::vector<std::int64_t> values;
  std::istringstream words(blanks);
  for (std::string word; words >> word;) {
    const std::optional<std::int64_t> value = parse_number<std::int64_t>(word);
    if (!value || *value < least || *value > most || values.size() == kMost) {
      values.clear();
      break;
    }
    values.push_back(*value);
  }
  if (values.empty()) {
    return allowed(fmt::format("up to {} integers from {} to {}, separated by blanks{}", kMost, least, most,
                               spelt_out(text, least, most)));
  }
  return values;
}

Read<std::vector<std::int64_t>> LayersPerIpu::read(const std::string& text) const {
  if (text == "balanced") {
    return {};
  }
  Read<std::vector<std::int64_t>> layers = Integers{-1, 1 << 16}.read(text);
  if (!layers || std::ranges::count(*layers, -1) > 1) {
    return allowed(
        "balanced, or a number of layers for each stage, such as 3 7 7 7; one of them may be -1, for the remaining "
        "layers");
  }
  return layers;
}

Read<std::pair<std::uint32_t, std::vector<std::string>>> InstanceWords::read(const std::string& text) const {
  const std::size_t colon = text.find(':');
  const std::optional<std::uint32_t> instance = parse_number<std::uint32_t>(text.substr(0, colon));
  if (colon == std::string::npos || !instance) {
    return allowed("INSTANCE:ARGS, such as 0:\"-x NAME=VALUE\"");
  }
  return Words{}.read(text.substr(colon + 1)).map([&](const std::vector<std::string>& words) {
    return std::pair(*instance, words);
  });
}

Read<NamedTile> TileName::read(const std::string& text) const {
  const std::size_t colon = text.find(':');
  NamedTile named;
  if (colon != std::string::npos) {
    named.ipu = parse_number<std::uint32_t>(text.substr(0, colon));
  }
  const std::optional<std::uint32_t> tile =
      parse_number<std::uint32_t>(colon == std::string::npos ? text : text.substr(colon + 1));
  if (!tile || (colon != std::string::npos && !named.ipu)) {
    return allowed("TILE or IPU:TILE, such as 952 or 3:952");
  }
  named.tile = *tile;
  return named;
}

Read<std::string> Subnet::read(const std::string& text) const {
  const std::size_t slash = text.find('/');
  const std::optional<std::uint32_t> bits =
      slash == std::string::npos ? std::nullopt : parse_number<std::uint32_t>(text.substr(slash + 1));
  in_addr address{};
  if (!bits || *bits > 32 || inet_pton(AF_INET, text.substr(0, slash).c_str(), &address) != 1) {
    return allowed("an IPv4 network with its prefix length, such as 10.1.0.0/16");
  }
  return text;
}

Read<std::string> IpAddress::read(const std::string& text) const {
  in6_addr address{};
  if (inet_pton(AF_INET, text.c_str(), &address) != 1 && inet_pton(AF_INET6, text.c_str(), &address) != 1) {
    return allowed("an IP address, such as 127.0.0.1 or ::");
  }
  return text;
}

Read<std::string> HostPort::read(const std::string& text) const {
  const std::size_t colon = text.rfind(':');
  const std::optional<std::uint16_t> port =
      colon == std::string::npos ? std::nullopt : parse_number<std::uint16_t>(text.substr(colon + 1));
  if (colon == 0 || !port || *port == 0) {
    return allowed("HOST:PORT with a port from 1 to 65535");
  }
  return text;
}

Read<CheckpointInterval> Interval::read(const std::string& text) const {
  constexpr std::uint64_t kStepsMax = 1'000'000'000;
  const std::size_t digits = text.find_first_not_of("0123456789.");
  const std::string_view unit = std::string_view(text).substr(digits == std::string::npos ? text.size() : digits);
  const std::string_view count = std::string_view(text).substr(0, text.size() - unit.size());
  const double factor = unit == "s" ? 1 : unit == "min" || unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  const std::optional<std::uint64_t> steps = parse_number<std::uint64_t>(count);
  if (unit.empty() && steps && *steps > 0 && *steps <= kStepsMax) {
    return CheckpointInterval{.steps = *steps};
  }
  const std::optional<double> times = parse_number<double>(count);
  if (factor > 0 && times && *times * factor >= 1 && *times * factor <= 1e8) {
    return CheckpointInterval{.seconds = *times * factor};
  }
  return allowed("a number of steps, such as 500, or a time of at least 1 s, such as 30s, 10min or 2h");
}

Read<double> LossScale::read(const std::string& text) const {
  if (text == "auto") {
    return 0.0;
  }
  const std::optional<double> value = parse_number<double>(text);
  if (!value || !std::isfinite(*value) || *value <= 0) {
    return allowed("a number above 0, or auto");
  }
  return *value;
}

Read<std::vector<proto::DumpRequest>> Dumps::read(const std::string& text) const {
  const char* form = "REGEX@STEP or REGEX@STEP,STEP,..., where each STEP is at least 1";
  const std::size_t at = text.rfind('@');
  if (at == std::string::npos || at == 0) {
    return allowed(form);
  }
  if (const Read<std::string> pattern = Regex{}.read(text.substr(0, at)); !pattern) {
    return allowed(fmt::format("{}, with {}", form, pattern.error()));
  }
  std::vector<proto::DumpRequest> requests;
  std::istringstream steps(text.substr(at + 1) + ',');
  for (std::string step_text; std::getline(steps, step_text, ',');) {
    const std::optional<std::uint64_t> step = parse_number<std::uint64_t>(step_text);
    if (!step || *step == 0) {
      return allowed(form);
    }
    proto::DumpRequest& request = requests.emplace_back();
    request.set_pattern(text.substr(0, at));
    request.set_step(*step);
  }
  return requests;
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> parse_range(std::string_view text) {
  const std::size_t hyphen = std::min(text.find('-'), text.size());
  const auto first = parse_number<std::uint64_t>(text.substr(0, hyphen));
  const auto last = hyphen == text.size() ? first : parse_number<std::uint64_t>(text.substr(hyphen + 1));
  return first && last && *first <= *last ? std::optional(std::pair(*first, *last)) : std::nullopt;
}

Read<StepRange::Value> StepRange::read(const std::string& text) const {
  const auto range = parse_range(text);
  if (!range || range->first == 0) {
    return allowed("STEP or FIRST-LAST, such as 1-20, where steps count from 1");
  }
  return Value{range->first, range->second};
}

Read<Variation::Value> Variation::read(const std::string& text) const {
  const std::string form = "KEY=VALUE,VALUE,..., such as model.layers=2,4,8";
  const std::size_t equals = std::min(text.find('='), text.size());
  Value value{text.substr(0, equals), {}};
  if (value.key.empty() || equals + 1 >= text.size() || !Text{}.read(text)) {
    return allowed(form);
  }
  std::string_view rest = std::string_view(text).substr(equals + 1);
  while (true) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const std::string one(rest.substr(0, end));
    if (one.empty()) {
      return allowed(form);
    }
    if (std::ranges::find(value.values, one) != value.values.end()) {
      return allowed(fmt::format("{}, without repeated values", form));
    }
    value.values.push_back(one);
    if (end == rest.size()) {
      return value;
    }
    rest.remove_prefix(end + 1);
  }
}

/// Reads positive integers that are joined by `x`. Returns an empty list unless there are `count` of them.
std::vector<std::int64_t> sizes_in(std::string_view text, std::size_t count) {
  std::vector<std::int64_t> sizes;
  while (true) {
    const std::size_t end = std::min(text.find('x'), text.size());
    const auto size = Integer{1, 1U << 31}.read(std::string(text.substr(0, end)));
    if (!size) {
      return {};
    }
    sizes.push_back(static_cast<std::int64_t>(*size));
    if (end == text.size()) {
      return sizes.size() == count ? sizes : std::vector<std::int64_t>{};
    }
    text.remove_prefix(end + 1);
  }
}

Read<proto::MatmulWork> Matmul::read(const std::string& text) const {
  const std::vector<std::int64_t> sizes = sizes_in(text, 3);
  if (sizes.empty()) {
    return allowed("ROWSxINNERxCOLUMNS, such as 3584x3584x3584");
  }
  proto::MatmulWork work;
  work.set_rows(sizes[0]);
  work.set_inner(sizes[1]);
  work.set_columns(sizes[2]);
  return work;
}

Read<proto::ConvolutionWork> Convolution::read(const std::string& text) const {
  const auto refused = [] {
    return allowed(
        "BATCHxCHANNELSxHEIGHTxWIDTH,OUTPUTSxHEIGHTxWIDTH[,stride=N][,padding=N][,groups=N], such as "
        "16x64x56x56,64x3x3,padding=1; groups divide both numbers of channels");
  };
  std::vector<std::string> parts;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    parts.push_back(word);
  }
  if (parts.size() < 2) {
    return refused();
  }
  const std::vector<std::int64_t> image = sizes_in(parts[0], 4);
  const std::vector<std::int64_t> kernel = sizes_in(parts[1], 3);
  if (image.empty() || kernel.empty()) {
    return refused();
  }
  std::map<std::string, std::int64_t> rest = {{"stride", 1}, {"padding", 0}, {"groups", 1}};
  for (std::size_t i = 2; i < parts.size(); ++i) {
    const std::size_t equals = std::min(parts[i].find('='), parts[i].size() - 1);
    const std::string key = parts[i].substr(0, equals);
    const auto number = Integer{key == "padding" ? 0U : 1U, 1U << 20}.read(parts[i].substr(equals + 1));
    if (!rest.contains(key) || !number) {
      return refused();
    }
    rest[key] = static_cast<std::int64_t>(*number);
  }
  if (image[1] % rest["groups"] != 0 || kernel[0] % rest["groups"] != 0) {
    return refused();
  }
  proto::ConvolutionWork work;
  work.set_batch(image[0]);
  work.set_channels(image[1]);
  work.set_height(image[2]);
  work.set_width(image[3]);
  work.set_outputs(kernel[0]);
  work.set_kernel_height(kernel[1]);
  work.set_kernel_width(kernel[2]);
  work.set_stride(rest["stride"]);
  work.set_padding(rest["padding"]);
  work.set_groups(rest["groups"]);
  return work;
}

std::vector<std::string> cpu_isas() {
  return {"sse41",          "avx", "avx2", "avx2_vnni", "avx512_core", "avx512_core_vnni", "avx512_core_bf16",
          "avx512_core_amx"};
}

std::optional<bool> parse_boolean(std::string_view text) {
  if (text == "yes" || text == "on" || text == "true" || text == "1") {
    return true;
  }
  if (text == "no" || text == "off" || text == "false" || text == "0") {
    return false;
  }
  return std::nullopt;
}

}  // namespace poprun::launcher
