#include "replica/loops/host_scalars.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>

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

/// Curves, indexed by RateSchedule.
constexpr std::array<Curve, kWords<RateSchedule>.size()> kCurves = {constant, linear, cosine, step};

}  // namespace

Result<LearningRate> LearningRate::make(const ScheduleOptions& options) {
  if (options.schedule == RateSchedule::kStep && options.decay_every == 0) {
    return fail(ErrorCode::kUsage, "training.schedule-steps = 0: training.schedule = step needs a number above 0");
  }
  LearningRate rate;
  rate.options_ = options;
  rate.shape_ = kCurves.at(static_cast<std::size_t>(options.schedule));
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
