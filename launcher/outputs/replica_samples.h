#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/outputs/growing_file.h"
#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// Name of the file in the output folder.
inline constexpr const char* kReplicaSamples = "replicas.csv";

/// Removes the file of an earlier job, if there is one.
void remove_replica_samples(const std::string& folder);

/// replicas.csv: the speed of each replica, for the heat map of report.html. Each row holds a replica's counters at a
/// heartbeat, if it completed steps since its last row:
///
///     wall_seconds,attempt,replica,steps,compute_seconds
///     12.004,1,3,41,5.120
///
/// `wall_seconds` counts from the first row of the attempt, and `compute_seconds` is the time in operators of these
/// steps, both in the wall time of the launcher's or the replica's machine. After 1,000 rows per replica, rows come
/// half as often, and so on, so the file stays small even for a year-long job.
class ReplicaSamples {
 public:
  /// `disk` must outlive this.
  ReplicaSamples(DiskThread& disk, std::string path, std::uint32_t replicas);

  /// Continues the file of an earlier attempt, if that wrote any row. Call this before the first `take` or `flush`.
  void go_on();

  /// Adds rows for the replicas in a heartbeat of attempt number `attempt`. `now` is in seconds of a monotonic clock.
  void take(const proto::Beat& beat, std::uint64_t attempt, double now);

  /// Begins to write the rows, if there are any. Never waits; rows that the disk does not accept are lost.
  void flush();

 private:
  struct Last {
    std::uint64_t steps = 0;
    double at = 0;
  };

  std::string path_;
  GrowingFile file_;
  std::vector<Last> last_;  ///< The last row of each replica.
  double first_at_ = -1;
  double interval_ = 0;
  std::uint64_t rows_ = 0;  ///< Since the interval last changed.
  bool goes_on_ = false;
};

}  // namespace poprun::launcher
