#include "replica/loops/host_scalars.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <vector>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

using Curve = double (*)(const ScheduleOptions&, double t);

double steps_after_warmup(const ScheduleOptions& options) {
  return static_cast<double>(options.total_steps - std::min(options.warmup_steps, options.total_steps - 1));
}

double constant(const ScheduleOptions& /*options*/, double /*t*/) {
  return 1;
}

double linear(const ScheduleOptions& options, double t) {
  return 1 - t / steps_after_warmup(options);
}

double cosine(const ScheduleOptions& options, double t) {
  return (1 + std::cos(std::numbers::pi * t / steps_after_warmup(options))) / 2;
}

double step(const ScheduleOptions& options, double t) {
  return std::pow(options.decay, std::floor(t / static_cast<double>(options.decay_every)));
}

const std::map<std::string, Curve>& shapes() {
  static const std::map<std::string, Curve> all = {
      {"constant", constant}, {"cosine", cosine}, {"linear", linear}, {"step", step}};
  return all;
}

}  // namespace

Result<LearningRate> LearningRate::make(const ScheduleOptions& options) {
  const auto found = shapes().find(options.schedule);
  if (found == shapes().end()) {
    std::vector<std::string> names;
    for (const auto& [name, shape] : shapes()) {
      names.push_back(name);
    }
    return fail(ErrorCode::kUsage, fmt::format("training.schedule: no schedule is called '{}'; {}", options.schedule,
                                               suggestion(options.schedule, names)));
  }
  if (options.schedule == "step" && options.decay_every == 0) {
    return fail(ErrorCode::kUsage, "training.schedule-steps = 0: training.schedule = step needs a number above 0");
  }
  LearningRate rate;
  rate.options_ = options;
  rate.shape_ = found->second;
  return rate;
}

double LearningRate::at(std::uint64_t step) const {
  const std::uint64_t warmup = options_.warmup_steps;
  if (step < warmup) {
    return options_.base * static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  return options_.base * shape_(options_, static_cast<double>(step - warmup));
}

void LossScale::after_step(bool finite) {
  if (!finite) {
    value_ = std::max(kLeast, value_ / 2);
    good_steps_ = 0;
    ++skipped_;
    return;
  }
  if (++good_steps_ == kGrowthInterval) {
    value_ = std::min(kMost, value_ * 2);
    good_steps_ = 0;
  }
}

}  // namespace poprun
