#include "launcher/screen/console.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/screen/styles.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";
constexpr double kPatienceSeconds = 10;

/// Writes `text`, and waits for a slow reader. Returns 0, or errno if something could not be written.
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

/// Returns whether `descriptor` is a terminal that understands control sequences.
bool is_capable_terminal(int descriptor) {
  const char* kind = std::getenv("TERM");
  return isatty(descriptor) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

/// Returns the number of columns that COLUMNS sets, or 0.
std::size_t wanted_columns() {
  const char* wanted = std::getenv("COLUMNS");
  const std::string_view digits = wanted == nullptr ? "" : wanted;
  return parse_number<std::size_t>(digits).value_or(0);
}

constexpr std::size_t kPageWidthMax = 10'000;

/// Returns the number of columns of the terminal `descriptor`, or 80 if it is not a terminal.
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

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

struct Outlet::State {
  struct Line {
    int descriptor;
    std::string text;
    Keep keep;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Line> lines;
  std::size_t bytes = 0;        ///< Total size of `lines`.
  std::uint64_t dropped = 0;    ///< Lines dropped since the last one written.
  int dropped_descriptor = -1;  ///< Stream of the last line dropped.
  std::string live;             ///< Text that the live line should show.
  std::string shown;            ///< Text that the live line shows now.
  int live_descriptor = -1;
  std::uint64_t writes = 0;     ///< Number of completed writes.
  std::map<int, int> failures;  ///< Keyed by descriptor: errno of its first failed write.
  bool has_thread = false;
  bool writing = false;
  bool gave_up = false;  ///< Whether the wait for the reader has timed out.
  bool over = false;

  [[nodiscard]] bool settled() const { return lines.empty() && dropped == 0 && live == shown; }

  /// Drops lines until the rest fit: those of Keep::kIfRoom before others, and older ones before newer ones. Always
  /// keeps one line.
  void make_room() {
    while (bytes > kWaitingBytesMax && lines.size() > 1) {
      auto victim = std::ranges::find(lines, Keep::kIfRoom, &State::Line::keep);
      victim = victim == lines.end() ? lines.begin() : victim;
      bytes -= victim->text.size();
      dropped_descriptor = victim->descriptor;
      lines.erase(victim);
      ++dropped;
    }
  }

  /// Writes the most urgent text, and releases the lock while it does so. Requires: there is text to write.
  void write_next(std::unique_lock<std::mutex>& lock) {
    int descriptor = live_descriptor;
    std::string text = shown.empty() ? "" : std::string{kClearLine};
    if (lines.empty() && dropped == 0) {
      text += live;
      shown = live;
    } else {
      shown.clear();
      if (const std::uint64_t count = std::exchange(dropped, 0); count > 0) {
        descriptor = dropped_descriptor;
        text += fmt::format("poprun-emu: {} left out here because the output was not read in time\n",
                            counted(count, "line"));
      } else {
        descriptor = lines.front().descriptor;
        text += lines.front().text;
        bytes -= lines.front().text.size();
        lines.pop_front();
      }
    }
    writing = true;
    lock.unlock();
    const int failure = write_all(descriptor, text);
    lock.lock();
    writing = false;
    if (failure != 0 && failure != EPIPE) {
      failures.try_emplace(descriptor, failure);
    }
    ++writes;
    changed.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex);
    while (!over) {
      if (settled()) {
        changed.wait(lock);
      } else {
        write_next(lock);
      }
    }
  }

  /// Makes the thread write the new text. If there is no thread, writes the text immediately.
  void deliver(std::unique_lock<std::mutex>& lock) {
    if (has_thread) {
      make_room();
      changed.notify_all();
      return;
    }
    while (!settled()) {
      write_next(lock);
    }
  }
};

Outlet::Outlet() : state_(std::make_shared<State>()) {}

Outlet::~Outlet() {
  if (!state_->live.empty()) {
    live(state_->live_descriptor, "");
  }
  settle();
  const std::lock_guard lock(state_->mutex);
  state_->over = true;
  state_->changed.notify_all();
}

void Outlet::write(int descriptor, std::string_view text, Keep keep) {
  std::unique_lock lock(state_->mutex);
  state_->lines.push_back({descriptor, fmt::format("{}{}", text, text.ends_with('\n') ? "" : "\n"), keep});
  state_->bytes += state_->lines.back().text.size();
  state_->deliver(lock);
}

void Outlet::live(int descriptor, std::string_view text) {
  std::unique_lock lock(state_->mutex);
  state_->live_descriptor = descriptor;
  state_->live = text;
  state_->deliver(lock);
}

void Outlet::never_wait() {
  const std::lock_guard lock(state_->mutex);
  if (state_->has_thread) {
    return;
  }
  try {
    std::thread([state = state_] { state->run(); }).detach();
    state_->has_thread = true;
  } catch (const std::system_error&) {  // The system cannot start another thread.
  }
}

void Outlet::settle() {
  std::unique_lock lock(state_->mutex);
  std::uint64_t writes = state_->writes;
  while (!state_->gave_up && (!state_->settled() || state_->writing)) {
    state_->gave_up = !state_->changed.wait_for(lock, std::chrono::duration<double>(kPatienceSeconds),
                                                [&] { return state_->writes != writes; });
    writes = state_->writes;
  }
}

int Outlet::failure(int descriptor) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->failures.find(descriptor);
  return found == state_->failures.end() ? 0 : found->second;
}

Console::Console()
    : is_terminal_(is_capable_terminal(STDERR_FILENO)),
      err_(std::make_shared<Outlet>()),
      out_(are_one_file(STDOUT_FILENO, STDERR_FILENO) ? err_ : std::make_shared<Outlet>()) {
  colour("auto");
}

void Console::colour(std::string_view when) {
  const char* plain = std::getenv("NO_COLOR");
  const bool asks = when == "auto" && (plain == nullptr || *plain == '\0');
  colours_out_ = when == "always" || (asks && is_capable_terminal(STDOUT_FILENO));
  colours_err_ = when == "always" || (asks && is_capable_terminal(STDERR_FILENO));
}

void Console::out(std::string_view text, Keep keep) {
  out_->write(STDOUT_FILENO, text, keep);
}

void Console::err(std::string_view text, Keep keep) {
  err_->write(STDERR_FILENO, text, keep);
}

void Console::say(std::string_view text, Keep keep) {
  err(fmt::format("poprun-emu: {}", text), keep);
  if (keep == Keep::kAlways) {
    said_.push_back({unix_seconds(), std::string(text.substr(0, kSaidBytesMax))});
    if (said_.size() > kSaidMax) {
      said_.pop_front();
    }
  }
}

int Console::say(const Error& error) {
  complain(error.message);
  return exit_code_of(error.code);
}

void Console::complain(std::string_view text) {
  err(fmt::format("{} {}", colours_err_ ? styled(Style::kBad, "poprun-emu:") : "poprun-emu:", text));
}

void Console::page(std::string_view text) {
  out(colours_out_ ? emphasised(text) : std::string(text));
}

void Console::next(std::string_view command) {
  if (!command.empty()) {
    err(fmt::format("{} {}", colours_err_ ? styled(Style::kHeading, "next:") : "next:", command));
  }
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
             : fail(ErrorCode::kInfrastructure, fmt::format("standard output cannot be written: {}; the remaining "
                                                            "lines are lost, but the files are not affected",
                                                            std::strerror(failure)));
}

std::size_t Console::width() const {
  return terminal_width(STDERR_FILENO);
}

std::size_t Console::page_width() const {
  const std::size_t columns = wanted_columns();
  return columns > 0 ? std::min(columns, kPageWidthMax) : terminal_width(STDOUT_FILENO);
}

bool Console::is_page_unbounded() const {
  return wanted_columns() == 0 && isatty(STDOUT_FILENO) != 1;
}

void Console::live(std::string_view text) {
  if (is_terminal_) {
    err_->live(STDERR_FILENO, text);
  }
}

}  // namespace poprun::launcher
