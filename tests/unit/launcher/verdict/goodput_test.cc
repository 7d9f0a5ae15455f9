#include "launcher/verdict/goodput.h"

#include <gtest/gtest.h>

namespace poprun::launcher::goodput_test {
namespace {

struct Times {
  double wall;
  double data = 0;
  double saving = 0;
};

proto::Elapsed elapsed(const Times& times) {
  proto::Elapsed elapsed;
  elapsed.set_wall_seconds(times.wall);
  elapsed.set_data_seconds(times.data);
  elapsed.set_saving_seconds(times.saving);
  return elapsed;
}

proto::ReportItem step(std::uint64_t number, const Times& times) {
  proto::ReportItem item;
  item.mutable_step()->set_step(number);
  *item.mutable_step()->mutable_elapsed() = elapsed(times);
  return item;
}

proto::ReportItem evaluation(std::uint64_t after, const Times& times) {
  proto::ReportItem item;
  item.mutable_evaluation()->set_step(after);
  *item.mutable_evaluation()->mutable_elapsed() = elapsed(times);
  return item;
}

double sum(const proto::Goodput& parts) {
  return parts.step_seconds() + parts.evaluation_seconds() + parts.start_seconds() + parts.data_seconds() +
         parts.saving_seconds() + parts.redone_seconds() + parts.down_seconds();
}

// All times are sums of powers of two, so that the sums below are exact.
constexpr double kLaunch = 1000;

TEST(Goodput, DividesTheTimeOfAJobWithoutRestarts) {
  Goodput goodput(kLaunch);
  goodput.take(step(1, {.wall = 2, .data = 0.5}), kLaunch + 6);
  goodput.take(step(2, {.wall = 3, .data = 0.75}), kLaunch + 7);
  goodput.take(evaluation(2, {.wall = 5, .data = 1}), kLaunch + 9);
  goodput.take(step(3, {.wall = 8, .data = 1, .saving = 1.5}), kLaunch + 12);
  goodput.reported(kLaunch + 16);
  goodput.reported(kLaunch + 99);
  const proto::Goodput parts = goodput.parts();
  EXPECT_EQ(parts.start_seconds(), 4);
  EXPECT_EQ(parts.step_seconds(), 1.5 + 0.75 + 1.5);
  EXPECT_EQ(parts.evaluation_seconds(), 1.75);
  EXPECT_EQ(parts.data_seconds(), 1);
  EXPECT_EQ(parts.saving_seconds(), 1.5 + 4);
  EXPECT_EQ(parts.total_seconds(), 16);
  EXPECT_EQ(sum(parts), 16);
  EXPECT_EQ(parts.ratio(), 5.5 / 16);
  EXPECT_EQ(parts.attempts(), 1U);
}

TEST(Goodput, CountsRepeatedStepsAndEvaluationsAsLost) {
  Goodput goodput(kLaunch);
  goodput.take(step(1, {.wall = 1}), kLaunch + 2);
  goodput.take(evaluation(1, {.wall = 2}), kLaunch + 3);
  goodput.take(step(2, {.wall = 3}), kLaunch + 4);
  goodput.failed(kLaunch + 6);
  goodput.take(step(3, {.wall = 4}), kLaunch + 6.5);  // Too late: the job repeats this step, too.
  goodput.restarted(kLaunch + 8);
  EXPECT_EQ(goodput.parts().down_seconds(), 4);  // From the end of step 2.
  goodput.take(evaluation(1, {.wall = 1}), kLaunch + 10);
  goodput.take(step(2, {.wall = 1.5, .data = 0.25}), kLaunch + 10.5);
  goodput.take(step(3, {.wall = 2.5, .data = 0.25}), kLaunch + 11.5);
  goodput.reported(kLaunch + 12);
  const proto::Goodput parts = goodput.parts();
  EXPECT_EQ(parts.start_seconds(), 1 + 1);
  EXPECT_EQ(parts.step_seconds(), 1 + 1 + 1);
  EXPECT_EQ(parts.evaluation_seconds(), 1);
  EXPECT_EQ(parts.redone_seconds(), 1 + 0.25);
  EXPECT_EQ(parts.redone_steps(), 1U);
  EXPECT_EQ(parts.data_seconds(), 0.25);
  EXPECT_EQ(parts.saving_seconds(), 0.5);
  EXPECT_EQ(sum(parts), 12);
  EXPECT_EQ(parts.total_seconds(), 12);
  EXPECT_EQ(parts.attempts(), 2U);
}

TEST(Goodput, CountsAnAttemptThatNeverTrainedAsAStart) {
  Goodput goodput(kLaunch);
  goodput.failed(kLaunch + 3);
  goodput.restarted(kLaunch + 5);
  EXPECT_EQ(goodput.parts().start_seconds(), 3);
  EXPECT_EQ(goodput.parts().down_seconds(), 2);
  EXPECT_EQ(goodput.parts().ratio(), 0);
}

TEST(Goodput, MovesNoSecondIfAReportIsLate) {
  Goodput goodput(kLaunch);
  goodput.take(step(1, {.wall = 1}), kLaunch + 3);
  goodput.take(step(2, {.wall = 2}), kLaunch + 9);  // It ended at second 4.
  goodput.take(step(3, {.wall = 7, .saving = 4}), kLaunch + 9);
  EXPECT_EQ(goodput.known_until(), kLaunch + 9);
  EXPECT_EQ(goodput.parts().step_seconds(), 3);
  EXPECT_EQ(goodput.parts().saving_seconds(), 4);
}

TEST(Goodput, NeverExceedsTheWallTimeWhateverAReplicaReports) {
  Goodput goodput(kLaunch);
  goodput.take(step(1, {.wall = 50, .data = 70, .saving = -3}), kLaunch + 3);
  goodput.take(step(2, {.wall = 20, .data = 1, .saving = 1000}), kLaunch + 2);
  goodput.take(step(3, {.wall = 60, .data = 500, .saving = 2000}), kLaunch + 6);
  goodput.reported(kLaunch + 7);
  EXPECT_EQ(sum(goodput.parts()), 7);
  EXPECT_EQ(goodput.parts().total_seconds(), 7);
}

TEST(Goodput, IsUnknownBeforeTheFirstStepAndIsNoneWithoutOne) {
  Goodput goodput(kLaunch);
  EXPECT_EQ(goodput.known_until(), kLaunch);
  EXPECT_EQ(goodput.parts().total_seconds(), 0);
  EXPECT_EQ(goodput.parts().ratio(), 0);
  goodput.reported(kLaunch + 2);  // The job resumed from a checkpoint after its last step.
  EXPECT_EQ(goodput.parts().start_seconds(), 2);
}

}  // namespace
}  // namespace poprun::launcher::goodput_test
