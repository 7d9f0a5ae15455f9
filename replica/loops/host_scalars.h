#pragma once

#include <cstdint>
#include <string>

#include "replica/base/error.h"

namespace poprun {

struct ScheduleOptions {
  std::string schedule;            ///< A name of the list below.
  double base = 0;                 ///< The learning rate itself.
  std::uint64_t total_steps = 1;   ///< Of the run; > 0.
  std::uint64_t warmup_steps = 0;  ///< W.
  std::uint64_t decay_every = 0;   ///< Of "step".
  double decay = 1;                ///< Of "step".
};

/// The learning rate of each step. The first W steps rise evenly to base, step s of them (from 0) to base * (s + 1) /
/// W; a run that ends before, as one that is cut short to try a job, only rises. After them, with t = s - W of T =
/// total_steps - W steps:
///
///   constant   base
///   linear     base * (1 - t / T)                    falls to zero over the run
///   cosine     base * (1 + cos(pi * t / T)) / 2      likewise (Loshchilov and Hutter,
///              arXiv:1608.03983, without restarts)
///   step       base * decay ^ floor(t / decay_every)
class LearningRate {
 public:
  LearningRate() = default;

  /// Errors: kUsage, no such schedule (lists those there are), or a "step" without
  /// decay_every.
  static Result<LearningRate> make(const ScheduleOptions& options);

  /// Returns the value for the step after `step` completed ones.
  [[nodiscard]] double at(std::uint64_t step) const;

 private:
  ScheduleOptions options_;
  double (*shape_)(const ScheduleOptions&, double t) = nullptr;  ///< Of base, after warm-up.
};

/// The factor by which a half precision loss is multiplied so that small gradients do not vanish, found as training
/// goes: halved after a step in which a gradient was not finite, doubled after kGrowthInterval steps in a row without
/// one. The rule and its numbers are those of PyTorch's torch.cuda.amp.GradScaler, except for the first scale, which
/// fits float16 gradients of a mean loss.
class LossScale {
 public:
  static constexpr double kFirst = 4096;
  static constexpr double kLeast = 1;
  static constexpr double kMost = 16'777'216;
  static constexpr std::uint64_t kGrowthInterval = 2000;

  LossScale() = default;
  /// As it was when another one told these figures.
  LossScale(double value, std::uint64_t good_steps, std::uint64_t skipped)
      : value_(value), good_steps_(good_steps), skipped_(skipped) {}

  [[nodiscard]] double value() const { return value_; }
  [[nodiscard]] std::uint64_t good_steps() const { return good_steps_; }
  [[nodiscard]] std::uint64_t skipped() const { return skipped_; }

  /// False where the scale cannot fall any further: then what is not finite is no matter of scale.
  [[nodiscard]] bool can_fall() const { return value_ > kLeast; }

  /// Tells of a step's end; `finite` is false if it was skipped.
  void after_step(bool finite);

 private:
  double value_ = kFirst;
  std::uint64_t good_steps_ = 0;  ///< In a row.
  std::uint64_t skipped_ = 0;
};

}  // namespace poprun
