#include "launcher/placement/hosts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <unistd.h>

#include "launcher/placement/addresses.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr std::size_t kHostsMax = 4096;
constexpr std::uint32_t kSlotsMax = 65536;

bool is_name(std::string_view text) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_';
  };
  return !text.empty() && text.front() != '-' && std::ranges::all_of(text, allowed);
}

/// Splits `text` at commas outside brackets. Spaces around the parts are ignored.
std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  bool in_bracket = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && !in_bracket)) {
      parts.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    } else if (text[i] == '[' || text[i] == ']') {
      in_bracket = text[i] == '[';
    }
  }
  return parts;
}

/// Expands `0-2,4` to 0 1 2 4. Numbers keep their width, as in `00-03`.
Result<std::vector<std::string>> expand_numbers(std::string_view text) {
  std::vector<std::string> numbers;
  for (const std::string_view part : split_list(text)) {
    const std::size_t dash = part.find('-');
    const std::string_view first = part.substr(0, dash);
    const std::string_view last = dash == std::string_view::npos ? first : part.substr(dash + 1);
    const std::optional<std::uint32_t> from = parse_number<std::uint32_t>(first);
    const std::optional<std::uint32_t> to = parse_number<std::uint32_t>(last);
    if (!from || !to || *from > *to || *to - *from >= kHostsMax) {
      return fail(ErrorCode::kUsage,
                  fmt::format("[{}] is not a list of ascending ranges of at most {} numbers, such as [0-2,4]", text,
                              kHostsMax));
    }
    for (std::uint32_t n = *from; n <= *to; ++n) {
      numbers.push_back(fmt::format("{:0{}}", n, first.size()));
    }
  }
  return numbers;
}

/// An entry of a list: a name and the properties of its hosts. A name with brackets denotes several hosts.
struct Entry {
  std::string names;
  std::uint32_t slots = 0;
  std::string user;
};

std::optional<std::uint32_t> slots_in(std::string_view text) {
  const std::optional<std::uint32_t> slots = parse_number<std::uint32_t>(text);
  return slots && *slots >= 1 && *slots <= kSlotsMax ? slots : std::nullopt;
}

/// Splits `user@node[0-3]` into the user and the names.
Entry entry_of(std::string_view text) {
  const std::size_t at = text.find('@');
  if (at == std::string_view::npos) {
    return {.names = std::string(text), .slots = 0, .user = {}};
  }
  return {.names = std::string(text.substr(at + 1)), .slots = 0, .user = std::string(text.substr(0, at))};
}

/// Expands `rack[0-1]n[0-3]` to its eight names, with the first bracket changing slowest.
Result<std::vector<std::string>> expand_names(std::string_view names) {
  std::vector<std::string> expanded = {""};
  for (;;) {
    const std::size_t open = names.find('[');
    const std::size_t close = names.find(']', open);
    const bool has_bracket = close != std::string_view::npos;
    std::vector<std::string> numbers = {""};
    if (has_bracket) {
      POPRUN_ASSIGN(numbers, expand_numbers(names.substr(open + 1, close - open - 1)));
    }
    if (expanded.size() * numbers.size() > kHostsMax) {
      return fail(ErrorCode::kUsage, fmt::format("the list contains more than {} hosts", kHostsMax));
    }
    std::vector<std::string> longer;
    for (const std::string& name : expanded) {
      for (const std::string& number : numbers) {
        longer.push_back(fmt::format("{}{}{}", name, has_bracket ? names.substr(0, open) : names, number));
      }
    }
    expanded = std::move(longer);
    if (!has_bracket) {
      return expanded;
    }
    names.remove_prefix(close + 1);
  }
}

enum class Repeats : std::uint8_t { kRefused, kAddSlots };

Status add_hosts(const Entry& entry, std::string_view written, Repeats repeats, std::vector<Host>& hosts) {
  if (std::ranges::count(entry.names, ':') > 1) {
    return fail(ErrorCode::kUsage, fmt::format("'{}' is an IPv6 address, which is not supported; give the host's name "
                                               "or IPv4 address",
                                               entry.names));
  }
  POPRUN_ASSIGN(const std::vector<std::string> names, expand_names(entry.names));
  for (const std::string& name : names) {
    if (!is_name(name) || (!entry.user.empty() && !is_name(entry.user)) || written.starts_with('@')) {
      return fail(ErrorCode::kUsage, fmt::format("'{}' is not a host name; write lists such as node0,node1:4 or "
                                                 "node[0-2,4], with user@ before a host if needed",
                                                 written));
    }
    const auto known = std::ranges::find(hosts, name, &Host::name);
    if (known != hosts.end() && repeats == Repeats::kAddSlots) {
      known->slots = std::max(1U, known->slots) + std::max(1U, entry.slots);
      continue;
    }
    if (known != hosts.end() || hosts.size() == kHostsMax) {
      return fail(ErrorCode::kUsage,
                  known != hosts.end()
                      ? fmt::format("host {} is listed twice; use {}:N for N instances on it", name, name)
                      : fmt::format("the list contains more than {} hosts", kHostsMax));
    }
    hosts.push_back({name, entry.slots, entry.user});
  }
  return {};
}

/// Parses an entry with or without slots, such as `user@node[0-2]:4`.
Result<Entry> entry_with_slots(std::string_view part) {
  const std::size_t close = part.rfind(']');
  const std::size_t colon = part.find(':', close == std::string_view::npos ? 0 : close);
  const bool has_slots = colon != std::string_view::npos && part.find(':', colon + 1) == std::string_view::npos;
  Entry entry = entry_of(has_slots ? part.substr(0, colon) : part);
  if (has_slots) {
    const std::optional<std::uint32_t> slots = slots_in(part.substr(colon + 1));
    if (!slots) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: the slots after the colon must be an integer from 1 to {}", part, kSlotsMax));
    }
    entry.slots = *slots;
  }
  return entry;
}

/// Returns the words of a line without its comment. Spaces around `=` do not separate words.
std::vector<std::string> words_of(std::string_view line) {
  std::string text;
  bool after_equals = false;
  for (const char c : line.substr(0, line.find('#'))) {
    const bool blank = c == ' ' || c == '\t';
    if (blank && after_equals) {
      continue;
    }
    if (c == '=') {
      text.erase(text.find_last_not_of(" \t") + 1);
    }
    after_equals = c == '=';
    text += c;
  }
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

Status add_line(const std::vector<std::string>& words, std::vector<Host>& hosts) {
  POPRUN_ASSIGN(Entry entry, entry_with_slots(words[0]));
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
      return fail(ErrorCode::kUsage, fmt::format("'{}' is not supported; a line has the form `[user@]HOST "
                                                 "[slots=N] [max_slots=N]` or `HOST:N`",
                                                 words[i]));
    }
    const std::optional<std::uint32_t> slots = slots_in(value);
    if (!slots) {
      return fail(ErrorCode::kUsage, fmt::format("{}: {} must be an integer from 1 to {}", words[i], key, kSlotsMax));
    }
    (bounds ? slots_max : entry.slots) = *slots;
  }
  if (entry.slots > slots_max) {
    return fail(ErrorCode::kUsage, fmt::format("slots={} is more than max_slots={}", entry.slots, slots_max));
  }
  if (entry.slots == 0 && slots_max < kSlotsMax) {
    entry.slots = slots_max;
  }
  return add_hosts(entry, words[0], Repeats::kAddSlots, hosts);
}

bool is_address(std::string_view text) {
  in_addr unused{};
  return inet_pton(AF_INET, std::string(text).c_str(), &unused) == 1;
}

}  // namespace

Result<std::vector<Host>> parse_host_list(std::string_view text) {
  std::vector<Host> hosts;
  for (const std::string_view part : split_list(text)) {
    POPRUN_ASSIGN(const Entry entry, entry_with_slots(part));
    POPRUN_TRY(add_hosts(entry, part, Repeats::kRefused, hosts));
  }
  return hosts;
}

Result<std::vector<Host>> parse_hostfile(std::string_view file, std::string_view text) {
  std::istringstream lines{std::string(text)};
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
    return fail(ErrorCode::kUsage, fmt::format("{}: the file lists no hosts", file));
  }
  return hosts;
}

std::string machine_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

bool same_host(std::string_view one, std::string_view other) {
  if (one.size() > other.size()) {
    std::swap(one, other);
  }
  return one == other ||
         (!is_address(one) && !is_address(other) && !one.empty() && other.starts_with(one) && other[one.size()] == '.');
}

std::vector<KnownHost> known_by_name(std::span<const Host> hosts) {
  const std::string own_name = machine_name();
  const char* slurms_name = std::getenv("SLURMD_NODENAME");
  std::vector<KnownHost> known;
  for (const Host& host : hosts) {
    known.push_back({.is_this_machine = host.name == "localhost" || host.name.starts_with("127.") ||
                                        same_host(host.name, own_name) ||
                                        (slurms_name != nullptr && host.name == slurms_name)});
  }
  return known;
}

std::vector<KnownHost> look_up(std::span<const Host> hosts) {
  constexpr std::chrono::seconds kPatience{5};
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::string> own = own_addresses();
  std::vector<KnownHost> known = known_by_name(hosts);
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    if (std::chrono::steady_clock::now() - begin >= kPatience) {
      break;
    }
    const std::string address = address_of(hosts[h].name).value_or("");
    known[h].address = address;
    known[h].is_this_machine =
        known[h].is_this_machine || address.starts_with("127.") || std::ranges::count(own, address) > 0;
  }
  return known;
}

}  // namespace poprun::launcher
