#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "proto/coordinator.pb.h"
#include "replica/base/ids.h"

namespace poprun {

/// What each replica of this instance does now: one writer a replica, one reader (the heartbeat).
/// Thread-safe. Writing costs an uncontended lock and the copy of a few bytes.
class ProgressBoard {
 public:
  ProgressBoard(std::uint32_t first_replica, std::uint32_t replicas);

  /// Requires: the replica is one of this instance.
  void write(ReplicaId replica, std::uint64_t step, std::string_view activity);
  /// The same in the step that it is in.
  void write(ReplicaId replica, std::string_view activity);
  /// Wall seconds in operators, over the replica's `steps` training steps so far.
  void operators(ReplicaId replica, std::uint64_t steps, double seconds);

  /// The replica begins to wait for its data server, or has what it waited for.
  void waits_for_data(ReplicaId replica, bool waits);
  /// The data server has made progress with the dataset and has read so much of it.
  void data_loads(ReplicaId replica, unsigned percent);

  /// Whether one of them has waited for its data server for so long.
  [[nodiscard]] bool waits_for_data(std::chrono::seconds least) const;

  [[nodiscard]] proto::Beat beat(std::uint32_t instance) const;

  /// What one of them does now.
  [[nodiscard]] proto::ReplicaProgress progress(ReplicaId replica) const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Slot {
    mutable std::mutex mutex;
    std::uint64_t step = 0;
    std::string activity = "starting";
    Clock::time_point since = Clock::now();
    proto::StepTimes times;
    std::optional<Clock::time_point> waits_for_data_since;
    std::optional<Clock::time_point> data_news;  ///< The last, in this wait.
    unsigned data_percent = 0;
  };

  [[nodiscard]] Slot& slot(ReplicaId replica) const;

  std::uint32_t first_replica_;
  std::uint32_t replicas_;
  std::unique_ptr<Slot[]> slots_;  ///< [replicas_]
};

}  // namespace poprun
