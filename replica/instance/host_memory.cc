#include "replica/instance/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sys/statvfs.h>

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
                std::vector<HostMemory>& found) {
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

std::optional<HostMemory> free_memory(const std::string& root) {
  std::vector<HostMemory> found;
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
  const auto least = std::ranges::min_element(found, {}, &HostMemory::free);
  return least == found.end() ? std::nullopt : std::optional(*least);
}

Bytes memory_touched(const Program& program) {
  Bytes bytes{0};
  for (const proto::IpuMemory& memory : program.memory()) {
    bytes = bytes + Bytes{static_cast<std::int64_t>(memory.peak())};
  }
  return bytes;
}

Status check_host_memory(const HostMemory& memory, const std::string& host, std::uint32_t replicas,
                         Bytes each) {
  const std::int64_t needed = each.count() * static_cast<std::int64_t>(replicas);
  if (needed <= memory.free.count()) {
    return {};
  }
  return fail(ErrorCode::kHostResources,
              fmt::format("{} replicas on host {} need {} of its memory for their tensors, "
                          "{} are free ({}); use more hosts (-H), fewer replicas or a "
                          "smaller data.micro-batch-size, or raise that limit",
                          replicas, host, bytes_text(needed), bytes_text(memory.free.count()),
                          memory.source),
              {.shortage = Shortage{.needed = Bytes{needed}, .had = memory.free}});
}

Status check_shared_folder(const std::string& folder, const std::string& host,
                           std::uint32_t processes) {
  constexpr std::int64_t kSegment = std::int64_t{4} << 20;
  const std::int64_t needed = std::int64_t{processes} * (64 + 4 * std::int64_t{processes}) * 1024;
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) {
    return {};
  }
  const auto free = static_cast<std::int64_t>(status.f_bavail * status.f_frsize);
  if (free < kSegment || free >= needed) {
    return {};
  }
  return fail(
      ErrorCode::kHostResources,
      fmt::format("{} processes on host {} need {} in {} for Open MPI, {} are free; mount a "
                  "larger one (docker run --shm-size), remove vader_segment.* that killed "
                  "jobs left there, or use fewer processes (--num-instances)",
                  processes, host, bytes_text(needed), folder, bytes_text(free)),
      {.shortage = Shortage{.needed = Bytes{needed}, .had = Bytes{free}}});
}

}  // namespace poprun
