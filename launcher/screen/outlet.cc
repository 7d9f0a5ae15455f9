#include "launcher/screen/outlet.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";
constexpr double kPatienceSeconds = 10;

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

struct Line {
  int descriptor;
  std::string text;
  Keep keep;
};

}  // namespace

struct Outlet::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Line> lines;
  std::size_t bytes = 0;        ///< Of `lines`.
  std::uint64_t dropped = 0;    ///< Lines, since the last that was written,
  int dropped_descriptor = -1;  ///< and where the last of them would have gone.
  std::string live;             ///< What the live line should show,
  std::string shown;            ///< and what it shows.
  int live_descriptor = -1;
  std::uint64_t writes = 0;     ///< That came back.
  std::map<int, int> failures;  ///< By descriptor.
  bool has_thread = false;
  bool writing = false;
  bool gave_up = false;  ///< Nobody waits for the reader any more.
  bool over = false;

  [[nodiscard]] bool settled() const { return lines.empty() && dropped == 0 && live == shown; }

  /// Lets go what may go first, the oldest first. One line stays, however long.
  void make_room() {
    while (bytes > kWaitingBytesMax && lines.size() > 1) {
      auto victim = std::ranges::find(lines, Keep::kIfRoom, &Line::keep);
      victim = victim == lines.end() ? lines.begin() : victim;
      bytes -= victim->text.size();
      dropped_descriptor = victim->descriptor;
      lines.erase(victim);
      ++dropped;
    }
  }

  /// Writes what is most urgent, without the lock while it does. Requires: not settled.
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
        text += fmt::format("poprun-emu: {} left out here, since nobody read them in time\n",
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

  /// Something is there to be written: by the thread, or now.
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
  state_->lines.push_back(
      {descriptor, fmt::format("{}{}", text, text.ends_with('\n') ? "" : "\n"), keep});
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
  } catch (const std::system_error&) {  // The host has no room for one more.
  }
}

void Outlet::settle() {
  std::unique_lock lock(state_->mutex);
  std::uint64_t writes = state_->writes;
  while (!state_->gave_up && (!state_->settled() || state_->writing)) {
    state_->gave_up =
        !state_->changed.wait_for(lock, std::chrono::duration<double>(kPatienceSeconds),
                                  [&] { return state_->writes != writes; });
    writes = state_->writes;
  }
}

int Outlet::failure(int descriptor) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->failures.find(descriptor);
  return found == state_->failures.end() ? 0 : found->second;
}

}  // namespace poprun::launcher
