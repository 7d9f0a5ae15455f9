#include "launcher/verdict/deadlines.h"

#include <gtest/gtest.h>

namespace poprun::launcher {
namespace {

using Due = Deadlines::Due;
using Facts = Deadlines::Facts;
using Trouble = Deadlines::Trouble;

constexpr double kLaunch = 1000;
constexpr double kEpsilon = 1e-6;

Deadlines deadlines(double job_timeout = 0, double drain_timeout = 0) {
  return Deadlines({.heartbeat_interval = 0.5,
                    .heartbeat_timeout = 30,
                    .join_timeout = 120,
                    .job_timeout = job_timeout,
                    .drain_timeout = drain_timeout},
                   kLaunch);
}

/// Expects that `what` becomes due at `at`, and nothing before it.
void expect_due(const Deadlines& deadlines, const Facts& facts, Due what, double at) {
  EXPECT_EQ(deadlines.due(facts, at - kEpsilon), Due::kNothing);
  EXPECT_EQ(deadlines.due(facts, at + kEpsilon), what);
}

TEST(Deadlines, NothingIsDueInAJobThatRuns) {
  EXPECT_EQ(deadlines().due({.oldest_heartbeat = kLaunch + 1e6}, kLaunch + 1e6), Due::kNothing);
}

TEST(Deadlines, AnInstanceMayBeSilentForTheHeartbeatTimeout) {
  expect_due(deadlines(), {.oldest_heartbeat = kLaunch + 5}, Due::kSilence, kLaunch + 35);
}

TEST(Deadlines, InstancesJoinWithinTheirTimeSinceTheLaunch) {
  expect_due(deadlines(), {.joining = true}, Due::kAbsence, kLaunch + 120);
}

TEST(Deadlines, ALongPreparationTakesNoTimeFromTheInstancesAndIsNoSleep) {
  Deadlines d = deadlines(/*job_timeout=*/500);
  d.started(kLaunch + 200);
  const Deadlines::Slept slept = d.woke(kLaunch + 200.1);
  EXPECT_FALSE(slept.excuses_silence || slept.is_worth_telling) << slept.seconds;
  EXPECT_DOUBLE_EQ(d.seconds_since_start(kLaunch + 210), 10);
  expect_due(d, {.joining = true}, Due::kAbsence, kLaunch + 320);
  d.joined(kLaunch + 220);
  expect_due(d, {.joining = true}, Due::kAbsence, kLaunch + 250);
  expect_due(d, {}, Due::kJobTimeout, kLaunch + 500);
}

TEST(Deadlines, InstancesJoinSoonAfterTheLastOfTheOthers) {
  Deadlines d = deadlines();
  d.joined(kLaunch + 10);
  d.joined(kLaunch + 20);
  expect_due(d, {.joining = true}, Due::kAbsence, kLaunch + 50);
  d.joined(kLaunch + 100);
  expect_due(d, {.joining = true}, Due::kAbsence, kLaunch + 120);
}

TEST(Deadlines, InstancesThatJoinedWhileTheLauncherSleptAreNotLate) {
  Deadlines d = deadlines();
  d.joined(kLaunch + 10);
  d.woke(kLaunch + 60);
  expect_due(d, {.joining = true}, Due::kAbsence, kLaunch + 90);
}

TEST(Deadlines, MpirunEndsSoonAfterTheLastInstanceLeft) {
  Deadlines d = deadlines();
  d.left(kLaunch + 50);
  d.left(kLaunch + 60);
  expect_due(d, {.done = true}, Due::kMpirunEnd, kLaunch + 90);
  EXPECT_EQ(d.due({}, kLaunch + 91), Due::kNothing) << "not all left, or results are missing";
}

TEST(Deadlines, ADrainedJobHasTheTimeOfTheDrainTimeout) {
  Deadlines d = deadlines(/*job_timeout=*/0, /*drain_timeout=*/30);
  d.draining(kLaunch + 10);
  expect_due(d, {}, Due::kDrainEnd, kLaunch + 40);
}

TEST(Deadlines, ADrainedJobHasAllTheTimeItNeedsWithoutADrainTimeout) {
  Deadlines d = deadlines();
  d.draining(kLaunch + 10);
  EXPECT_EQ(d.due({}, kLaunch + 1e6), Due::kNothing);
  EXPECT_DOUBLE_EQ(d.next({}, kLaunch + 20), kLaunch + 20.1);
}

TEST(Deadlines, AFullDiskHasTenMinutesFromItsFirstRefusalOn) {
  Deadlines d = deadlines();
  EXPECT_TRUE(d.no_room(kLaunch + 10));
  EXPECT_FALSE(d.no_room(kLaunch + 300)) << "not the first";
  expect_due(d, {}, Due::kRoomEnd, kLaunch + 610);
}

TEST(Deadlines, AJobEndsAtItsTimeout) {
  expect_due(deadlines(/*job_timeout=*/600), {}, Due::kJobTimeout, kLaunch + 600);
}

TEST(Deadlines, ACauseIsJudgedAtOnce) {
  Deadlines d = deadlines();
  d.trouble(Trouble::kCause, kLaunch + 10);
  EXPECT_EQ(d.due({}, kLaunch + 10), Due::kVerdict);
}

TEST(Deadlines, OneSideOfAnExchangeWaitsForTheOthers) {
  Deadlines d = deadlines();
  d.trouble(Trouble::kOneSide, kLaunch + 10);
  expect_due(d, {}, Due::kVerdict, kLaunch + 10.5);
}

TEST(Deadlines, ALostInstanceWaitsForMpirunsWord) {
  Deadlines d = deadlines();
  d.trouble(Trouble::kLostTouch, kLaunch + 10);
  expect_due(d, {}, Due::kVerdict, kLaunch + 15);
}

TEST(Deadlines, AVerdictWaitsForDumpsAsLongAsTheyCome) {
  Deadlines d = deadlines();
  d.dump_came(kLaunch + 9);
  EXPECT_EQ(d.due({}, kLaunch + 9.5), Due::kNothing) << "no verdict is to come";
  d.trouble(Trouble::kDumps, kLaunch + 10);
  expect_due(d, {}, Due::kVerdict, kLaunch + 12);
  d.dump_came(kLaunch + 11);
  expect_due(d, {}, Due::kVerdict, kLaunch + 13);
}

TEST(Deadlines, AVerdictOnOtherTroubleDoesNotWaitForDumps) {
  Deadlines d = deadlines();
  d.trouble(Trouble::kOneSide, kLaunch + 10);
  d.dump_came(kLaunch + 10.25);
  EXPECT_FALSE(d.awaits_dumps());
  expect_due(d, {}, Due::kVerdict, kLaunch + 10.5);
}

TEST(Deadlines, TheCodeOfAFailureTellsWhoElseMayKnow) {
  EXPECT_EQ(Deadlines::trouble_of_failure(75, false), Trouble::kOneSide);
  EXPECT_EQ(Deadlines::trouble_of_failure(70, true), Trouble::kOneSide);
  EXPECT_EQ(Deadlines::trouble_of_failure(65, true), Trouble::kDumps);
  EXPECT_EQ(Deadlines::trouble_of_failure(65, false), Trouble::kCause);
  EXPECT_EQ(Deadlines::trouble_of_failure(86, true), Trouble::kCause);
}

TEST(Deadlines, LaterTroubleCanHastenAVerdictAndNotDelayIt) {
  Deadlines d = deadlines();
  d.trouble(Trouble::kLostTouch, kLaunch + 10);
  d.trouble(Trouble::kLostTouch, kLaunch + 12);
  expect_due(d, {}, Due::kVerdict, kLaunch + 15);
  d.trouble(Trouble::kOneSide, kLaunch + 11);
  expect_due(d, {}, Due::kVerdict, kLaunch + 11.5);
}

TEST(Deadlines, TroubleComesBeforeTheSilenceThatFollowsFromIt) {
  Deadlines d = deadlines(/*job_timeout=*/40);
  const Facts silent = {.oldest_heartbeat = kLaunch};
  d.trouble(Trouble::kLostTouch, kLaunch + 29);
  EXPECT_EQ(d.due(silent, kLaunch + 31), Due::kNothing);
  EXPECT_EQ(d.due(silent, kLaunch + 50), Due::kVerdict) << "also before the job's timeout";
}

TEST(Deadlines, AStoppingJobIsKilledWhereItDoesNotEndAndLeftInTheEnd) {
  Deadlines d = deadlines(/*job_timeout=*/1);
  d.trouble(Trouble::kCause, kLaunch + 9);
  d.stopping(kLaunch + 10);
  const Facts running = {.processes_run = true};
  expect_due(d, running, Due::kKill, kLaunch + 11.5);
  EXPECT_EQ(d.due(running, kLaunch + 13.9), Due::kKill);
  EXPECT_EQ(d.due(running, kLaunch + 14), Due::kFinish);
}

TEST(Deadlines, AStoppingJobFinishesAsSoonAsNothingRuns) {
  Deadlines d = deadlines();
  d.stopping(kLaunch + 10);
  EXPECT_EQ(d.due({.processes_run = false}, kLaunch + 10), Due::kFinish);
}

TEST(Deadlines, MpirunsLinesAreHeldForTwoSecondsUnlessThereIsTrouble) {
  Deadlines d = deadlines();
  d.mpirun_line_held(kLaunch + 10);
  EXPECT_FALSE(d.shows_mpirun_lines(kLaunch + 12 - kEpsilon));
  EXPECT_TRUE(d.shows_mpirun_lines(kLaunch + 12 + kEpsilon));
  d.trouble(Trouble::kLostTouch, kLaunch + 12);
  EXPECT_FALSE(d.shows_mpirun_lines(kLaunch + 13));
}

TEST(Deadlines, ALauncherThatSleptExcusesTheOthersAndTellsOfALongSleep) {
  Deadlines d = deadlines();
  EXPECT_FALSE(d.woke(kLaunch + 0.1).excuses_silence);
  const Deadlines::Slept nap = d.woke(kLaunch + 1.2);
  EXPECT_TRUE(nap.excuses_silence);
  EXPECT_FALSE(nap.is_worth_telling);
  const Deadlines::Slept sleep = d.woke(kLaunch + 11.2);
  EXPECT_TRUE(sleep.excuses_silence && sleep.is_worth_telling);
  EXPECT_NEAR(sleep.seconds, 10, kEpsilon);
}

TEST(Deadlines, TheLoopWakesTenTimesASecondAndForEveryDeadline) {
  Deadlines d = deadlines();
  EXPECT_DOUBLE_EQ(d.next({}, kLaunch), kLaunch + 0.1);
  d.trouble(Trouble::kOneSide, kLaunch);
  EXPECT_DOUBLE_EQ(d.next({}, kLaunch + 0.45), kLaunch + 0.5);
  EXPECT_DOUBLE_EQ(d.next({}, kLaunch + 0.5), kLaunch + 0.6) << "what is due does not keep the loop busy";
}

TEST(Deadlines, QuietIsLongerThanTwoHeartbeats) {
  EXPECT_EQ(deadlines().quiet_seconds(), 5);
}

}  // namespace
}  // namespace poprun::launcher
