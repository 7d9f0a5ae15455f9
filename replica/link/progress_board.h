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

/// The current activity of each replica of this instance. There is one writer per replica, and one reader, the
/// heartbeat. The class is thread-safe. Writing costs an uncontended lock and the copy of a few bytes.
class ProgressBoard {
 public:
  ProgressBoard(std::uint32_t first_replica, std::uint32_t replicas);

  /// Records the replica's step and activity. Requires: the replica belongs to this instance.
  void write(ReplicaId replica, std::uint64_t step, std::string_view activity);
  /// Records the replica's activity without changing its step.
  void write(ReplicaId replica, std::string_view activity);
  /// Records the wall seconds spent in operators over the replica's `steps` training steps so far.
  void operators(ReplicaId replica, std::uint64_t steps, double seconds);

  /// Records that the replica begins or ends a wait for its data server.
  void waits_for_data(ReplicaId replica, bool waits);
  /// Records how much of the dataset the data server has read.
  void data_loads(ReplicaId replica, unsigned percent);

  /// Returns whether a replica has been waiting for its data server for at least `least`.
  [[nodiscard]] bool waits_for_data(std::chrono::seconds least) const;

  [[nodiscard]] proto::Beat beat(std::uint32_t instance) const;

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
    std::optional<Clock::time_point> data_news;  ///< Time of the last progress in this wait.
    unsigned data_percent = 0;
  };

  [[nodiscard]] Slot& slot(ReplicaId replica) const;

  std::uint32_t first_replica_;
  std::uint32_t replicas_;
  std::unique_ptr<Slot[]> slots_;  ///< [replicas_]
};

/// Decides where the replicas of one instance stop when the job is asked to drain. Parts come in the same order on all
/// replicas of a job, so the same number means the same part on all replicas. The launcher learns how many parts each
/// replica has begun and makes the highest number the last part of every replica. Thread-safe.
///
///   launcher    drain .........>            last part ..>
///   replica     part 7   part 8 |  holds    part 9       | stops before part 10
class DrainGate {
 public:
  explicit DrainGate(std::uint32_t replicas) : parts_(replicas), ends_(replicas) {}

  /// Announces that the replica will run `parts` more parts, followed by one exchange.
  void begin_parts(std::uint32_t local, std::uint64_t parts);

  /// Returns whether the replica with index `local` in the instance may begin its next part. The call costs an
  /// uncontended lock. While the instance's replicas are on hold, the call waits for the number of the last part, which
  /// arrives when the launcher has heard from every instance. If the number does not arrive, the launcher names the
  /// silent instances and ends this process.
  [[nodiscard]] bool begin_part(std::uint32_t local);

  /// Returns whether the replica needs no more data: the job stops before its next part or the exchange after that.
  [[nodiscard]] bool stops(std::uint32_t local) const;

  /// Applies the launcher's latest directive.
  void take(const proto::Directive& directive);

  [[nodiscard]] bool holds() const;

  /// Fills in the numbers from which the launcher chooses the last part. Requires: `beat` has a ReplicaProgress for
  /// each replica.
  void tell(proto::Beat& beat) const;

 private:
  [[nodiscard]] bool is_stopped(std::uint32_t local) const;

  mutable std::mutex mutex_;
  std::condition_variable decided_;
  std::vector<std::uint64_t> parts_;  ///< Parts begun by each replica.
  std::vector<std::uint64_t> ends_;   ///< For each replica: the last part before the next exchange.
  bool holds_ = false;
  std::optional<std::uint64_t> last_part_;
};

}  // namespace poprun
