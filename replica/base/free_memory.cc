#include "replica/base/free_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace poprun {
namespace {

/// A number alone in a file; nothing where there is none, as in "max".
std::optional<std::int64_t> number_in(const std::string& path) {
  std::string text;
  std::getline(std::ifstream(path), text);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(std::min(number, static_cast<std::uint64_t>(kMax)));
}

/// The number after a word at the beginning of a line; 0 where there is none.
std::int64_t field(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::int64_t number = 0;
    if (words >> word >> number && word == name) {
      return number;
    }
  }
  return 0;
}

/// The files of a version of control groups.
struct Files {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* dropped;  ///< In memory.stat: caches that can be dropped.
};

constexpr Files kVersion1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                          "total_inactive_file"};
constexpr Files kVersion2{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

/// What a group and those above it leave. In a container its own group is often the root.
void add_groups(const std::string& root, const Files& files, std::string group,
                std::vector<FreeMemory>& found) {
  while (true) {
    const std::string folder = fmt::format("{}{}{}/", root, files.mount, group);
    const auto limit = number_in(folder + files.limit);
    const auto usage = number_in(folder + files.usage);
    if (limit && usage) {
      const std::int64_t used = *usage - field(folder + "memory.stat", files.dropped);
      found.push_back(
          {Bytes{std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, used))},
           fmt::format("{} of control group {}", files.limit, group.empty() ? "/" : group)});
    }
    if (group.empty()) {
      return;
    }
    group.erase(group.rfind('/'));
  }
}

}  // namespace

std::optional<FreeMemory> free_memory(const std::string& root) {
  std::vector<FreeMemory> found;
  const std::string machine = root + "/proc/meminfo";
  if (const std::int64_t available = field(machine, "MemAvailable:"); available > 0) {
    found.push_back({Bytes{(available + field(machine, "SwapFree:")) * 1024},
                     "MemAvailable and SwapFree of /proc/meminfo"});
  }
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/a/b", "0::/a/b"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    const std::string group = path == "/" || !path.starts_with('/') ? "" : path;
    if (controllers.empty()) {
      add_groups(root, kVersion2, group, found);
    } else if (controllers == "memory") {
      add_groups(root, kVersion1, group, found);
    }
  }
  const auto least = std::ranges::min_element(found, {}, &FreeMemory::bytes);
  return least == found.end() ? std::nullopt : std::optional(*least);
}

}  // namespace poprun
