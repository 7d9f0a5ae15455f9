#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/coordinator.pb.h"
#include "replica/base/units.h"

namespace poprun {

/// The current activity of each replica of this instance: one writer per replica, one reader (the heartbeat).
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

  /// The current activity of one of them.
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

/// Where the replicas of one instance stop when the job is asked to drain. Parts come in the same order on all replicas
/// of a job, so their numbers agree: the launcher hears how many each replica has begun, and names the highest of these
/// numbers as the last part of all.
///
///   launcher    drain .........>            last part ..>
///   replica     part 7   part 8 |  holds    part 9       | stops before part 10
///
/// Thread-safe.
class DrainGate {
 public:
  explicit DrainGate(std::uint32_t replicas) : parts_(replicas), ends_(replicas) {}

  /// The next `parts` of the replica have one exchange, after the last of them.
  void begin_parts(std::uint32_t local, std::uint64_t parts);

  /// Whether the replica, by its place in the instance, shall begin its next part. Costs an uncontended lock; once the
  /// instance holds it waits for the last part, which comes as soon as the launcher has heard from every instance.
  /// Should it not come, the launcher names who is silent and ends this process.
  [[nodiscard]] bool begin_part(std::uint32_t local);

  /// Whether the replica needs no more data: the job stops before its next part, or before the last that this one
  /// counts with.
  [[nodiscard]] bool stops(std::uint32_t local) const;

  /// The launcher's latest directive.
  void take(const proto::Directive& directive);

  [[nodiscard]] bool holds() const;

  /// Fills in what the launcher decides by. Requires: a ReplicaProgress for each replica.
  void tell(proto::Beat& beat) const;

 private:
  [[nodiscard]] bool is_stopped(std::uint32_t local) const;

  mutable std::mutex mutex_;
  std::condition_variable decided_;
  std::vector<std::uint64_t> parts_;  ///< Begun, by replica.
  std::vector<std::uint64_t> ends_;   ///< The last part before its next exchange.
  bool holds_ = false;
  std::optional<std::uint64_t> last_part_;
};

}  // namespace poprun
