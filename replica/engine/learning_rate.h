#pragma once

#include <cstdint>
#include <string_view>

#include "replica/base/error.h"

namespace poprun {

/// The learning rate of each step.
///
///   constant   base
///   linear     base * (1 - step / total_steps): falls to zero over the run
class LearningRate {
 public:
  LearningRate() = default;

  /// Errors: kUsage, lists the schedules there are. Requires: total_steps > 0.
  static Result<LearningRate> make(std::string_view schedule, double base,
                                   std::uint64_t total_steps);

  /// Of the step after `step` completed ones.
  [[nodiscard]] double at(std::uint64_t step) const;

 private:
  double base_ = 0;
  bool linear_ = false;
  std::uint64_t total_steps_ = 1;
};

}  // namespace poprun
