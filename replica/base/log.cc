#include "replica/base/log.h"

#include <atomic>

#include <fmt/format.h>
#include <unistd.h>

namespace poprun::log {
namespace {

std::atomic<Level> minimum{Level::kInfo};

char letter(Level level) {
  switch (level) {
    case Level::kDebug:
      return 'D';
    case Level::kInfo:
      return 'I';
    case Level::kWarning:
      return 'W';
    case Level::kError:
      return 'E';
  }
  return '?';
}

}  // namespace

void set_level(Level level) {
  minimum = level;
}

void write(Level level, std::string_view source, std::string_view message) {
  if (level < minimum.load()) {
    return;
  }
  std::string lines;
  while (!message.empty()) {
    const std::size_t end = message.find('\n');
    const std::string_view line = message.substr(0, end);
    if (source.empty()) {
      lines += fmt::format("{} {}\n", letter(level), line);
    } else {
      lines += fmt::format("[{}] {} {}\n", source, letter(level), line);
    }
    message = end == std::string_view::npos ? std::string_view{} : message.substr(end + 1);
  }
  // A full or closed standard error must not stop training, so the result is ignored.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, lines.data(), lines.size());
}

std::string replica_source(unsigned replica, std::string_view host) {
  return fmt::format("replica {} @ {}", replica, host);
}

}  // namespace poprun::log
