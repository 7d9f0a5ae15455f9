#include "launcher/placement/hosts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <iterator>
#include <optional>
#include <regex>
#include <sstream>

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
      return fail(
          ErrorCode::kUsage,
          fmt::format("[{}] is not an ascending range of at most {} numbers such as [0-2,4]", text,
                      kHostsMax));
    }
    for (std::uint32_t n = *from; n <= *to; ++n) {
      numbers.push_back(fmt::format("{:0{}}", n, first.size()));
    }
  }
  return numbers;
}

/// What a list says about the hosts of one name, which may have a bracket.
struct Entry {
  std::string names;
  std::uint32_t slots = 0;
  std::string user;
};

std::optional<std::uint32_t> slots_in(std::string_view text) {
  const std::optional<std::uint32_t> slots = integer(text);
  return slots && *slots >= 1 && *slots <= kSlotsMax ? slots : std::nullopt;
}

/// `user@node[0-3]`.
Entry entry_of(std::string_view text) {
  const std::size_t at = text.find('@');
  if (at == std::string_view::npos) {
    return {.names = std::string(text), .slots = 0, .user = {}};
  }
  return {.names = std::string(text.substr(at + 1)),
          .slots = 0,
          .user = std::string(text.substr(0, at))};
}

Status add_hosts(const Entry& entry, std::string_view written, std::vector<Host>& hosts) {
  const std::string_view names = entry.names;
  if (std::ranges::count(names, ':') > 1) {
    return fail(ErrorCode::kUsage,
                fmt::format("'{}' is an IPv6 address, which is not supported; give the host's name "
                            "or IPv4 address",
                            names));
  }
  const std::size_t open = names.find('[');
  const std::size_t close = names.find(']');
  std::vector<std::string> numbers = {""};
  std::string before(names);
  std::string after;
  if (open != std::string_view::npos && close != std::string_view::npos && open < close) {
    before = names.substr(0, open);
    after = names.substr(close + 1);
    POPRUN_ASSIGN(numbers, expand_numbers(names.substr(open + 1, close - open - 1)));
  }
  for (const std::string& number : numbers) {
    const Host host{fmt::format("{}{}{}", before, number, after), entry.slots, entry.user};
    if (!is_name(host.name) || (!host.user.empty() && !is_name(host.user)) ||
        written.starts_with('@')) {
      return fail(ErrorCode::kUsage,
                  fmt::format("'{}' is not a host name; lists look like node0,node1:4 or "
                              "node[0-2,4], with user@ in front where needed",
                              written));
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

/// A part of --host: `user@node[0-2]:4`.
Status add_listed(std::string_view part, std::vector<Host>& hosts) {
  const std::size_t close = part.find(']');
  const std::size_t colon = part.find(':', close == std::string_view::npos ? 0 : close);
  const bool has_slots =
      colon != std::string_view::npos && part.find(':', colon + 1) == std::string_view::npos;
  Entry entry = entry_of(has_slots ? part.substr(0, colon) : part);
  if (has_slots) {
    const std::optional<std::uint32_t> slots = slots_in(part.substr(colon + 1));
    if (!slots) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: slots after the colon must be an integer from 1 to {}", part,
                              kSlotsMax));
    }
    entry.slots = *slots;
  }
  return add_hosts(entry, part, hosts);
}

/// The words of a line without its comment; blanks around `=` do not separate.
std::vector<std::string> words_of(std::string_view line) {
  static const std::regex around_equals("[ \\t]*=[ \\t]*");
  std::istringstream text(
      std::regex_replace(std::string(line.substr(0, line.find('#'))), around_equals, "="));
  return {std::istream_iterator<std::string>(text), {}};
}

/// A line of a hostfile.
Status add_line(const std::vector<std::string>& words, std::vector<Host>& hosts) {
  Entry entry = entry_of(words[0]);
  std::uint32_t slots_max = kSlotsMax;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t equals = std::min(words[i].find('='), words[i].size());
    const std::string key = words[i].substr(0, equals);
    const std::string value = words[i].substr(std::min(equals + 1, words[i].size()));
    if (key == "username" && !value.empty()) {
      entry.user = value;
      continue;
    }
    const bool bounds = key == "max_slots" || key == "max-slots";
    if (key != "slots" && !bounds) {
      return fail(ErrorCode::kUsage, fmt::format("'{}' is not supported; a line is `[user@]HOST "
                                                 "[slots=N] [max_slots=N]`",
                                                 words[i]));
    }
    const std::optional<std::uint32_t> slots = slots_in(value);
    if (!slots) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: {} must be an integer from 1 to {}", words[i], key, kSlotsMax));
    }
    (bounds ? slots_max : entry.slots) = *slots;
  }
  if (entry.slots > slots_max) {
    return fail(ErrorCode::kUsage,
                fmt::format("slots={} is more than max_slots={}", entry.slots, slots_max));
  }
  if (entry.slots == 0 && slots_max < kSlotsMax) {
    entry.slots = slots_max;
  }
  return add_hosts(entry, words[0], hosts);
}

}  // namespace

Result<std::vector<Host>> parse_host_list(std::string_view text) {
  std::vector<Host> hosts;
  for (const std::string_view part : split_list(text)) {
    POPRUN_TRY(add_listed(part, hosts));
  }
  return hosts;
}

Result<std::vector<Host>> parse_hostfile(std::string_view file, std::string_view text) {
  std::istringstream lines{std::string(without_byte_order_mark(text))};
  std::vector<Host> hosts;
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::vector<std::string> words = words_of(line);
    const Status added = words.empty() ? Status{} : add_line(words, hosts);
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
