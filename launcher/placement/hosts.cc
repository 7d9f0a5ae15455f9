#include "launcher/placement/hosts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include "launcher/options/config_file.h"

namespace poprun::launcher {
namespace {

constexpr std::size_t kHostsMax = 4096;
constexpr std::uint32_t kSlotsMax = 65536;

std::optional<std::uint32_t> integer(std::string_view text) {
  std::uint32_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

bool is_name(std::string_view text) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_';
  };
  return !text.empty() && text.front() != '-' && std::ranges::all_of(text, allowed);
}

/// Splits at commas outside of brackets.
std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  bool in_bracket = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && !in_bracket)) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    } else if (text[i] == '[' || text[i] == ']') {
      in_bracket = text[i] == '[';
    }
  }
  return parts;
}

/// `0-2,4` to 0 1 2 4; `00-03` keeps its width.
Result<std::vector<std::string>> expand_numbers(std::string_view text) {
  std::vector<std::string> numbers;
  for (const std::string_view part : split_list(text)) {
    const std::size_t dash = part.find('-');
    const std::string_view first = part.substr(0, dash);
    const std::string_view last = dash == std::string_view::npos ? first : part.substr(dash + 1);
    const std::optional<std::uint32_t> from = integer(first);
    const std::optional<std::uint32_t> to = integer(last);
    if (!from || !to || *from > *to || *to - *from >= kHostsMax) {
      return fail(ErrorCode::kUsage,
                  fmt::format("[{}] is no rising range of at most {} numbers, as in [0-2,4]", text,
                              kHostsMax));
    }
    for (std::uint32_t n = *from; n <= *to; ++n) {
      numbers.push_back(fmt::format("{:0{}}", n, first.size()));
    }
  }
  return numbers;
}

Status add_hosts(std::string_view part, std::vector<Host>& hosts) {
  const std::size_t open = part.find('[');
  const std::size_t close = part.find(']');
  const std::size_t colon = part.find(':', close == std::string_view::npos ? 0 : close);
  const std::string_view names = part.substr(0, colon);
  std::uint32_t slots = 0;
  if (colon != std::string_view::npos) {
    const std::optional<std::uint32_t> stated = integer(part.substr(colon + 1));
    if (!stated || *stated == 0 || *stated > kSlotsMax) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: slots after the colon must be an integer from 1 to {}", part,
                              kSlotsMax));
    }
    slots = *stated;
  }
  std::vector<std::string> numbers = {""};
  std::string before(names);
  std::string after;
  if (open != std::string_view::npos && close != std::string_view::npos && open < close &&
      close < names.size()) {
    before = names.substr(0, open);
    after = names.substr(close + 1);
    POPRUN_ASSIGN(numbers, expand_numbers(names.substr(open + 1, close - open - 1)));
  }
  for (const std::string& number : numbers) {
    Host host;
    host.name = fmt::format("{}{}{}", before, number, after);
    host.slots = slots;
    if (!is_name(host.name)) {
      return fail(
          ErrorCode::kUsage,
          fmt::format("'{}' is no host name; lists look like node0,node1:4 or node[0-2,4]", part));
    }
    const bool known = std::ranges::find(hosts, host.name, &Host::name) != hosts.end();
    if (known || hosts.size() == kHostsMax) {
      return fail(ErrorCode::kUsage,
                  known ? fmt::format("host {} is listed twice; use {}:N for N instances on it",
                                      host.name, host.name)
                        : fmt::format("more than {} hosts", kHostsMax));
    }
    hosts.push_back(host);
  }
  return {};
}

}  // namespace

Result<std::vector<Host>> parse_host_list(std::string_view text) {
  std::vector<Host> hosts;
  for (const std::string_view part : split_list(text)) {
    POPRUN_TRY(add_hosts(part, hosts));
  }
  return hosts;
}

Result<std::vector<Host>> parse_hostfile(std::string_view file, std::string_view text) {
  text = without_byte_order_mark(text);
  std::vector<Host> hosts;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, std::min(end, text.find('#')));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    ++number;
    std::vector<std::string> words;
    while (true) {
      const std::size_t first = line.find_first_not_of(" \t\r");
      if (first == std::string_view::npos) {
        break;
      }
      line = line.substr(first);
      const std::size_t length = std::min(line.find_first_of(" \t\r"), line.size());
      words.emplace_back(line.substr(0, length));
      line = line.substr(length);
    }
    if (words.empty()) {
      continue;
    }
    const bool has_slots = words.size() == 2 && words[1].starts_with("slots=");
    if (words.size() > 2 || (words.size() == 2 && !has_slots)) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}:{}: a line is `HOST` or `HOST slots=N`", file, number));
    }
    const Status added =
        add_hosts(has_slots ? words[0] + ":" + words[1].substr(6) : words[0], hosts);
    if (!added) {
      return fail(ErrorCode::kUsage, fmt::format("{}:{}: {}", file, number, added.error().message));
    }
  }
  if (hosts.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("{}: lists no host", file));
  }
  return hosts;
}

std::string machine_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

bool is_this_machine(std::string_view host) {
  return host == "localhost" || host.starts_with("127.") || host == machine_name();
}

}  // namespace poprun::launcher
