#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "proto/coordinator.pb.h"

namespace poprun {

/// Where the replicas of one instance stop when the job is asked to drain. Parts come in the same
/// order on all replicas of a job, so their numbers agree: the launcher hears how many each replica
/// has begun, and names the highest of these numbers as the last part of all.
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

  /// Whether the replica, by its place in the instance, shall begin its next part. Costs an
  /// uncontended lock; once the instance holds it waits for the last part, which comes as soon as
  /// the launcher has heard from every instance. Should it not come, the launcher names who is
  /// silent and ends this process.
  [[nodiscard]] bool begin_part(std::uint32_t local);

  /// Whether the replica needs no more data: the job stops before its next part, or before the last
  /// that this one counts with.
  [[nodiscard]] bool stops(std::uint32_t local) const;

  /// What the launcher asks for.
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
