#include "replica/loops/host_scalars.h"

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun::host_scalars_test {
namespace {

using ::testing::HasSubstr;

ScheduleOptions options_of(RateSchedule schedule) {
  return {.schedule = schedule, .base = 0.5, .total_steps = 8};
}

TEST(LearningRate, FallsToZeroOverTheRunWhereLinear) {
  const LearningRate constant = *LearningRate::make(options_of(RateSchedule::kConstant));
  const LearningRate linear = *LearningRate::make(options_of(RateSchedule::kLinear));

  EXPECT_EQ(constant.at(7), 0.5);
  EXPECT_EQ(linear.at(0), 0.5);
  EXPECT_EQ(linear.at(4), 0.25);
  EXPECT_EQ(linear.at(8), 0.0);
}

TEST(LearningRate, FallsAlongACosine) {
  const LearningRate cosine = *LearningRate::make(options_of(RateSchedule::kCosine));

  EXPECT_DOUBLE_EQ(cosine.at(0), 0.5);
  EXPECT_DOUBLE_EQ(cosine.at(2), 0.25 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(cosine.at(4), 0.25);
  EXPECT_NEAR(cosine.at(8), 0, 1e-15);
}

TEST(LearningRate, FallsByStepsAfterTheWarmUp) {
  ScheduleOptions options = options_of(RateSchedule::kStep);
  options.warmup_steps = 2;
  options.decay_every = 3;
  options.decay = 0.1;
  const LearningRate rate = *LearningRate::make(options);

  EXPECT_DOUBLE_EQ(rate.at(0), 0.25);
  EXPECT_DOUBLE_EQ(rate.at(1), 0.5);
  EXPECT_DOUBLE_EQ(rate.at(4), 0.5);
  EXPECT_DOUBLE_EQ(rate.at(5), 0.05);
  EXPECT_DOUBLE_EQ(rate.at(8), 0.005);
}

TEST(LearningRate, RefusesAStepWithoutItsLength) {
  EXPECT_THAT(LearningRate::make(options_of(RateSchedule::kStep)).error().message,
              HasSubstr("training.schedule = step needs a number above 0"));
}

TEST(LearningRate, OnlyRisesInARunThatEndsBeforeItsWarmUp) {
  ScheduleOptions options = options_of(RateSchedule::kLinear);
  options.warmup_steps = 2 * options.total_steps;
  const LearningRate rate = *LearningRate::make(options);

  EXPECT_DOUBLE_EQ(rate.at(0), options.base / 16);
  EXPECT_DOUBLE_EQ(rate.at(7), options.base / 2);
}

TEST(LossScale, HalvesAfterAnOverflowAndDoublesAfterManyGoodSteps) {
  LossScale scale;
  scale.after_step(false);
  EXPECT_EQ(scale.value(), LossScale::kFirst / 2);
  for (std::uint64_t k = 0; k < LossScale::kGrowthInterval; ++k) {
    EXPECT_EQ(scale.value(), LossScale::kFirst / 2);
    scale.after_step(true);
  }
  EXPECT_EQ(scale.value(), LossScale::kFirst);
  EXPECT_EQ(scale.skipped(), 1U);
  for (int k = 0; k < 20; ++k) {
    scale.after_step(false);
  }
  EXPECT_EQ(scale.value(), LossScale::kLeast);
  EXPECT_FALSE(scale.can_fall());
}

}  // namespace
}  // namespace poprun::host_scalars_test
