#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/local/call.h"

namespace poprun::collectives {

/// The last collectives of one replica on all its channels, for failure reports. Threads: any, because channels may run
/// concurrently. Cost: an uncontended lock and one clock read; no allocation once every entry has been used.
class CallLog {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::size_t kKept = 8;

  /// Records the start of a call; `title` is `Rendezvous::Options::among` of its channel. Returns the call's number.
  std::uint64_t begin(std::uint64_t sequence, const Call& call, const std::string& title);

  /// Marks the call as done. May be invoked after each part of a call; only the last point in time is kept.
  void done(std::uint64_t number);

  /// Marks the call as not done, even after `done`.
  void broken(std::uint64_t number);

  /// Returns one line per call, oldest first: "call 17 of replicas 0, 4: all-reduce (mean) of 40 B ('conv1.bias' and 9
  /// more), begun 2.314 s ago, took 4.200 ms", or "begun 2.314 s ago, not done".
  [[nodiscard]] std::vector<std::string> lines(Clock::time_point now) const;

 private:
  struct Entry {
    std::uint64_t sequence = 0;
    Call call;
    std::string title;
    Clock::time_point begun;
    Clock::time_point ended;
    bool done = false;
  };

  [[nodiscard]] bool keeps(std::uint64_t number) const { return number + kKept >= begun_; }

  mutable std::mutex mutex_;  ///< Guards the members below.
  std::array<Entry, kKept> entries_;
  std::uint64_t begun_ = 0;
};

}  // namespace poprun::collectives
