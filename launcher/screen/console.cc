#include "launcher/screen/console.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace poprun::launcher {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";

bool is_live_terminal() {
  const char* kind = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

/// Waits for a slow reader. Returns errno where the rest of `text` cannot be written.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EAGAIN) {
      pollfd ready{descriptor, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (written < 0 && errno != EINTR) {
      return errno;
    }
    text.remove_prefix(written < 0 ? 0 : static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

Console::Console() : is_terminal_(is_live_terminal()) {}

Console::~Console() {
  clear_live();
}

void Console::out(std::string_view text) {
  const int failure = write(STDOUT_FILENO, text);
  if (out_failure_ == 0 && failure != EPIPE) {
    out_failure_ = failure;
  }
}

Status Console::out_status() const {
  return out_failure_ == 0
             ? Status{}
             : fail(ErrorCode::kInfrastructure,
                    fmt::format("standard output cannot be written: {}; what it should have said "
                                "is lost, written files are not",
                                std::strerror(out_failure_)));
}

void Console::err(std::string_view text) {
  write(STDERR_FILENO, text);
}

void Console::say(std::string_view text) {
  write(STDERR_FILENO, fmt::format("poprun-emu: {}", text));
}

std::size_t Console::width() const {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void Console::live(std::string_view text) {
  if (is_terminal_ && text != live_) {
    live_ = text;
    write_all(STDERR_FILENO, fmt::format("{}{}", kClearLine, live_));
  }
}

int Console::write(int descriptor, std::string_view text) {
  clear_live();
  return write_all(descriptor, fmt::format("{}{}", text, text.ends_with('\n') ? "" : "\n"));
}

void Console::clear_live() {
  if (!std::exchange(live_, {}).empty()) {
    write_all(STDERR_FILENO, kClearLine);
  }
}

}  // namespace poprun::launcher
