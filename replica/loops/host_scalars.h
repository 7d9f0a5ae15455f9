#pragma once

#include <cstdint>

#include "replica/base/error.h"
#include "replica/choices/choices.h"

namespace poprun {

struct ScheduleOptions {
  RateSchedule schedule = {};      ///< See LearningRate.
  double base = 0;                 ///< The learning rate that the schedule scales.
  std::uint64_t total_steps = 1;   ///< Steps of the run; > 0.
  std::uint64_t warmup_steps = 0;  ///< W in the comment on LearningRate.
  std::uint64_t decay_every = 0;   ///< For kStep.
  double decay = 1;                ///< For kStep.
};

/// The learning rate of each step. During the first W steps it rises linearly to base: step s, counted from 0, uses
/// base * (s + 1) / W. In a shorter run, it only rises. After warm-up, with t = s - W and T = total_steps - W:
///
///   constant   base
///   linear     base * (1 - t / T)                    falls to zero over the run
///   cosine     base * (1 + cos(pi * t / T)) / 2      also falls to zero (Loshchilov and Hutter,
///              arXiv:1608.03983, without restarts)
///   step       base * decay ^ floor(t / decay_every)
class LearningRate {
 public:
  LearningRate() = default;

  /// Returns the learning rate for these options. Errors: kUsage if kStep is given without decay_every.
  static Result<LearningRate> make(const ScheduleOptions& options);

  /// Returns the learning rate of the step that follows `step` completed steps.
  [[nodiscard]] double at(std::uint64_t step) const;

 private:
  ScheduleOptions options_;
  double (*shape_)(const ScheduleOptions&, double t) = nullptr;  ///< Factor of base after warm-up.
};

/// The factor by which a half-precision loss is multiplied so that small gradients do not vanish (dynamic loss
/// scaling). It is halved after a step with a non-finite gradient, and doubled after kGrowthInterval finite steps in a
/// row. The rule and its numbers are those of PyTorch's torch.cuda.amp.GradScaler, except for the initial scale, which
/// fits float16 gradients of a mean loss.
class LossScale {
 public:
  static constexpr double kFirst = 4096;
  static constexpr double kLeast = 1;
  static constexpr double kMost = 16'777'216;
  static constexpr std::uint64_t kGrowthInterval = 2000;

  LossScale() = default;
  /// Continues with the values of an earlier LossScale.
  LossScale(double value, std::uint64_t good_steps, std::uint64_t skipped)
      : value_(value), good_steps_(good_steps), skipped_(skipped) {}

  [[nodiscard]] double value() const { return value_; }
  [[nodiscard]] std::uint64_t good_steps() const { return good_steps_; }
  [[nodiscard]] std::uint64_t skipped() const { return skipped_; }

  /// Returns whether the scale can fall further. If not, a value that is not finite has a different cause.
  [[nodiscard]] bool can_fall() const { return value_ > kLeast; }

  /// Records the end of a step; `finite` is false if the step was skipped.
  void after_step(bool finite);

 private:
  double value_ = kFirst;
  std::uint64_t good_steps_ = 0;  ///< Finite steps in a row.
  std::uint64_t skipped_ = 0;
};

}  // namespace poprun
