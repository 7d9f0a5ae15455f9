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

/// The learning rate of each step. The first W steps rise evenly to base, step s of them (from 0)
/// to base * (s + 1) / W; a run that ends before, as one that is cut short to try a job, only
/// rises. After them, with t = s - W of T = total_steps - W steps:
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

  /// Of the step after `step` completed ones.
  [[nodiscard]] double at(std::uint64_t step) const;

 private:
  ScheduleOptions options_;
  double (*shape_)(const ScheduleOptions&, double t) = nullptr;  ///< Of base, after warm-up.
};

}  // namespace poprun
