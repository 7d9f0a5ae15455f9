#pragma once

#include <cstdint>
#include <optional>

#include "proto/coordinator.pb.h"
#include "proto/profile.pb.h"

namespace poprun::launcher {

/// Divides the wall time of a training job into the parts of proto::Goodput. Every second belongs to exactly one part:
///
///   launch         first step begins                   last completed step      next launch
///      |--- start ------|--- steps, evaluations, waits ---------|------ down --------|--- start ---
///
/// After the last step of the job, the time until its results have arrived counts as saving. All attempts of this
/// launcher are included (--restarts), but not those of an earlier launcher from whose checkpoint the job resumed
/// (--resume): neither its time, nor that its last steps are executed again here. The replicas' clocks measure steps
/// and waits, so a delayed report moves no second to another part. The class only keeps records. All times are in
/// seconds on one monotonic clock.
class Goodput {
 public:
  explicit Goodput(double launched_at) : launched_at_(launched_at), known_until_(launched_at) {}

  /// Records the report of a step or an evaluation, which arrives at `now`, and ignores all other items. Items that
  /// arrive after a failure do not count.
  void take(const proto::ReportItem& item, double now);
  /// Records that the current attempt has failed. If it had not begun to train, all of its time was a start.
  void failed(double now);
  /// Records that the next attempt is launched.
  void restarted(double now);
  /// Records that all results have arrived. Nothing counts after this.
  void reported(double now);

  /// Returns the time of the first launch.
  [[nodiscard]] double launched_at() const { return launched_at_; }
  /// Returns the parts up to `known_until`. None of them ever decreases.
  [[nodiscard]] proto::Goodput parts() const;
  /// Returns the time up to which every second belongs to a part. In a running job, this is the end of the last step or
  /// evaluation or, before the first one, the launch.
  [[nodiscard]] double known_until() const { return known_until_; }

 private:
  struct Span {
    double seconds = 0;
    double data = 0;    ///< Part of it.
    double saving = 0;  ///< Part of it.
  };

  [[nodiscard]] double until(double then);
  Span span_until(const proto::Elapsed& elapsed, double now);

  double launched_at_;
  double known_until_;
  std::optional<double> began_;       ///< Time at which the current attempt began to train.
  proto::Elapsed last_;               ///< As in the last item of the current attempt.
  bool counts_ = true;                ///< Whether reports still count.
  std::uint64_t farthest_step_ = 0;   ///< Over all attempts.
  std::uint64_t evaluated_step_ = 0;  ///< Step of the last evaluation of any attempt.
  proto::Goodput parts_;
};

}  // namespace poprun::launcher
