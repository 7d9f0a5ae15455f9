#include "launcher/screen/console.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace poprun::launcher {
namespace {

bool is_live_terminal() {
  const char* kind = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

constexpr std::size_t kPageWidthMax = 10'000;

/// Columns of the terminal behind a descriptor, 80 where there is none.
std::size_t terminal_width(int descriptor) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool are_one_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

Console::Console()
    : is_terminal_(is_live_terminal()),
      err_(std::make_shared<Outlet>()),
      out_(are_one_file(STDOUT_FILENO, STDERR_FILENO) ? err_ : std::make_shared<Outlet>()) {}

void Console::out(std::string_view text, Keep keep) {
  out_->write(STDOUT_FILENO, text, keep);
}

void Console::err(std::string_view text, Keep keep) {
  err_->write(STDERR_FILENO, text, keep);
}

void Console::say(std::string_view text, Keep keep) {
  err(fmt::format("poprun-emu: {}", text), keep);
}

void Console::never_wait() {
  out_->never_wait();
  err_->never_wait();
}

void Console::settle() {
  out_->settle();
  err_->settle();
}

Status Console::out_status() const {
  const int failure = out_->failure(STDOUT_FILENO);
  return failure == 0
             ? Status{}
             : fail(ErrorCode::kInfrastructure,
                    fmt::format("standard output cannot be written: {}; its remaining lines "
                                "are lost, but no files are",
                                std::strerror(failure)));
}

std::size_t Console::width() const {
  return terminal_width(STDERR_FILENO);
}

std::size_t Console::page_width() const {
  const char* wanted = std::getenv("COLUMNS");
  const std::string_view digits = wanted == nullptr ? "" : wanted;
  std::size_t columns = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), columns);
  const bool valid = error == std::errc{} && end == digits.data() + digits.size() && columns > 0;
  return valid ? std::min(columns, kPageWidthMax) : terminal_width(STDOUT_FILENO);
}

void Console::live(std::string_view text) {
  if (is_terminal_) {
    err_->live(STDERR_FILENO, text);
  }
}

}  // namespace poprun::launcher
