#pragma once

#include <cstdint>
#include <optional>

namespace poprun::launcher {

/// When replicas are asked for a checkpoint, besides those that they take by themselves every so
/// many steps: at intervals of time, and when the user wishes one. One at a time. A pure policy:
/// times are seconds of one clock that come in.
class CheckpointRequests {
 public:
  /// `every_seconds`: between two; 0: only those that are wished.
  explicit CheckpointRequests(double every_seconds) : every_seconds_(every_seconds) {}

  void wish() { wished_ = true; }

  /// To be called often while the job trains: the step after which all replicas shall take one, if
  /// one is due and not asked for yet. It is some steps ahead, so that every replica hears of it in
  /// time; where one did not, and the checkpoint lacks its part, it is asked for again.
  ///
  /// `step`: the highest of `steps` that any replica has done, at `now`. `begun`: the step of the
  /// checkpoint of which all parts have begun to come; 0: none.
  std::optional<std::uint64_t> due(std::uint64_t step, std::uint64_t steps, std::uint64_t begun,
                                   double now);

  /// One after `step` was stored, or the disk did not take it. True if that answers a request.
  bool came(std::uint64_t step);

 private:
  [[nodiscard]] double steps_in(double seconds, std::uint64_t step, double now);

  struct Request {
    std::uint64_t first_step = 0;  ///< Any from this one on will do.
    std::uint64_t last_step = 0;   ///< That was asked for last,
    double asked_at = 0;           ///< at this time.
  };
  struct Mark {
    std::uint64_t step = 0;
    double at = 0;
  };

  double every_seconds_;
  bool wished_ = false;
  std::optional<Request> request_;  ///< That nothing has answered yet.
  std::optional<double> due_at_;    ///< When the next one by time is due.
  std::optional<Mark> first_;       ///< The first step that was seen, for the speed.
};

}  // namespace poprun::launcher
