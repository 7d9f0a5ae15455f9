#include "collectives/session/children.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <fmt/format.h>

namespace poprun::collectives {
namespace {

/// The number after the last ')' and the state letter of /proc/PID/stat: the parent.
pid_t parent_in_stat(const std::string& stat) {
  const std::size_t close = stat.rfind(')');
  pid_t parent = 0;
  if (close != std::string::npos && close + 4 < stat.size()) {
    std::from_chars(stat.data() + close + 4, stat.data() + stat.size(), parent);
  }
  return parent;
}

}  // namespace

pid_t parent_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string stat;
  std::getline(file, stat, '\0');
  return parent_in_stat(stat);
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    pid_t pid = 0;
    const auto [stop, parse_error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parse_error == std::errc{} && stop == name.data() + name.size() && parent_of(pid) == parent) {
      children.push_back(pid);
    }
  }
  return children;
}

}  // namespace poprun::collectives
