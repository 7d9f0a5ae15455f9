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

/// The last collectives of one replica on all its channels, for the report of a failure.
///
/// Threads: from any, since channels may run side by side.
/// Cost: an uncontended lock and a look at the clock; no memory once each place was used.
class CallLog {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::size_t kKept = 8;

  /// A call begins: `title` is that of the channel in Rendezvous::Options, `among`. Returns the
  /// call's number here.
  std::uint64_t begin(std::uint64_t sequence, const Call& call, const std::string& title);

  /// It is done so far. May be said after each of its parts: the last one counts.
  void done(std::uint64_t number);

  /// It is not done after all.
  void broken(std::uint64_t number);

  /// The oldest first: "call 17 of replicas 0, 4: all-reduce (mean) of 40 B ('conv1.bias' and 9
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

  mutable std::mutex mutex_;  ///< Guards what follows.
  std::array<Entry, kKept> entries_;
  std::uint64_t begun_ = 0;
};

}  // namespace poprun::collectives
