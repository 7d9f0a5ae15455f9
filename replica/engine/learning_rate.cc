#include "replica/engine/learning_rate.h"

#include <fmt/format.h>

namespace poprun {

Result<LearningRate> LearningRate::make(std::string_view schedule, double base,
                                        std::uint64_t total_steps) {
  if (schedule != "constant" && schedule != "linear") {
    return fail(ErrorCode::kUsage,
                fmt::format("training.schedule: no schedule is called '{}'; there are: constant, "
                            "linear",
                            schedule));
  }
  LearningRate rate;
  rate.base_ = base;
  rate.linear_ = schedule == "linear";
  rate.total_steps_ = total_steps;
  return rate;
}

double LearningRate::at(std::uint64_t step) const {
  return linear_ ? base_ * (1.0 - static_cast<double>(step) / static_cast<double>(total_steps_))
                 : base_;
}

}  // namespace poprun
