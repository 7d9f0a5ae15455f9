#include "collectives/local/call_log.h"

#include <algorithm>

#include <fmt/format.h>

namespace poprun::collectives {

std::uint64_t CallLog::begin(std::uint64_t sequence, const Call& call, const std::string& title) {
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[begun_ % kKept];
  entry.sequence = sequence;
  entry.call = call;
  entry.title = title;
  entry.begun = now;
  entry.done = false;
  return begun_++;
}

void CallLog::done(std::uint64_t number) {
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (keeps(number)) {
    Entry& entry = entries_[number % kKept];
    entry.ended = now;
    entry.done = true;
  }
}

void CallLog::broken(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (keeps(number)) {
    entries_[number % kKept].done = false;
  }
}

std::vector<std::string> CallLog::lines(Clock::time_point now) const {
  using Seconds = std::chrono::duration<double>;
  using Milliseconds = std::chrono::duration<double, std::milli>;
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  for (std::uint64_t number = begun_ - std::min<std::uint64_t>(begun_, kKept); number < begun_; ++number) {
    const Entry& entry = entries_[number % kKept];
    lines.push_back(fmt::format(
        "call {}{}: {}, begun {:.3f} s ago, {}", entry.sequence, entry.title, describe(entry.call),
        Seconds(now - entry.begun).count(),
        entry.done ? fmt::format("took {:.3f} ms", Milliseconds(entry.ended - entry.begun).count()) : "not done"));
  }
  return lines;
}

}  // namespace poprun::collectives
