#pragma once

#include <cstdint>
#include <optional>

namespace poprun::launcher {

/// Decides when replicas are asked for a checkpoint, in addition to those that they take by themselves every few steps:
/// at intervals of time, and when the user requests one. Only one request is open at a time. A pure policy: times are
/// passed in as seconds of one clock.
class CheckpointRequests {
 public:
  /// `every_seconds` is the time between two checkpoints; 0: only those that the user requests.
  explicit CheckpointRequests(double every_seconds) : every_seconds_(every_seconds) {}

  void wish() { wished_ = true; }

  /// Returns the step after which all replicas shall take a checkpoint, if one is due and not requested yet. Call often
  /// while the job trains. The step is a few steps ahead, so that the request reaches every replica in time; if it
  /// misses one, and the checkpoint lacks that replica's part, the request is repeated.
  ///
  /// `step` is the highest of `steps` that any replica has completed at `now`. `begun` is the step of the checkpoint in
  /// progress, once all of its parts have begun to arrive; 0: none.
  std::optional<std::uint64_t> due(std::uint64_t step, std::uint64_t steps, std::uint64_t begun, double now);

  /// Records that the checkpoint after `step` was stored, or that the disk did not accept it. Returns whether that
  /// answers a request.
  bool came(std::uint64_t step);

 private:
  [[nodiscard]] double steps_in(double seconds, std::uint64_t step, double now);

  struct Request {
    std::uint64_t first_step = 0;  ///< Any checkpoint from this step on will do.
    std::uint64_t last_step = 0;   ///< The step requested last.
    double asked_at = 0;           ///< When it was requested.
  };
  struct Mark {
    std::uint64_t step = 0;
    double at = 0;
  };

  double every_seconds_;
  bool wished_ = false;
  std::optional<Request> request_;  ///< The request that is still open.
  std::optional<double> due_at_;    ///< When the next checkpoint by time is due.
  std::optional<Mark> first_;       ///< The first step seen, to estimate the speed.
};

}  // namespace poprun::launcher
