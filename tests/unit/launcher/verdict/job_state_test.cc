#include "launcher/verdict/job_state.h"

#include <gmock/gmock.h>

#include "tests/unit/launcher/joined_job.h"

namespace poprun::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

using JobStateTest = JoinedJob;

TEST_F(JobStateTest, WatchesTheOldestHeartbeatOfThoseThatAreThere) {
  JobState state = joined();
  beat(state, 0, 9, "conv2", 19);
  beat(state, 1, 9, "conv2", 18);
  state.leave(2, true);
  EXPECT_EQ(state.oldest_heartbeat(), 10) << "replica 3's joining";
  beat(state, 3, 9, "conv2", 20);
  EXPECT_EQ(state.oldest_heartbeat(), 18);
  for (const std::uint32_t instance : {0U, 1U, 3U}) {
    state.leave(instance, true);
  }
  EXPECT_EQ(state.oldest_heartbeat(), std::nullopt);
}

TEST_F(JobStateTest, ALauncherThatSleptBlamesNobody) {
  JobState state = joined();
  state.forgive_silence(100);
  EXPECT_THAT(state.silent(101, 3), IsEmpty());
}

TEST_F(JobStateTest, RefusesInstancesThatDoNotBelongToTheJob) {
  JobState state = joined();
  EXPECT_THAT(state.join(request(4), 11).error().message, HasSubstr("does not exist; the job has 4 instances"));
  EXPECT_THAT(state.join(request(1), 11).error().message, HasSubstr("instance 1 has already joined"));
  proto::JoinRequest old = request(2);
  old.set_version("0.0.1");
  EXPECT_THAT(state.join(old, 11).error().message, HasSubstr("is version 0.0.1"));
}

TEST_F(JobStateTest, IgnoresBeatsOfReplicasThatDoNotExist) {
  JobState state = joined();
  beat(state, 77, 1000, "x", 20);
  EXPECT_EQ(state.step(), 0U);
}

proto::Beat beat(std::uint32_t instance, bool holds, std::initializer_list<std::uint64_t> parts) {
  proto::Beat beat;
  beat.set_instance(instance);
  beat.set_holds(holds);
  for (const std::uint64_t begun : parts) {
    beat.add_replicas()->set_parts(begun);
  }
  return beat;
}

TEST(DrainPoint, IsWhereTheReplicaThatIsFurthestIs) {
  DrainPoint point(2);
  point.beat(beat(0, true, {7, 9}));
  EXPECT_FALSE(point.last_part()) << "instance 1 may begin further parts";
  point.beat(beat(1, true, {8, 7}));
  EXPECT_EQ(point.last_part(), 9U);
  EXPECT_FALSE(point.last_part()) << "told once";
}

TEST(DrainPoint, WaitsForBeatsThatHold) {
  DrainPoint point(1);
  point.beat(beat(0, false, {7}));
  EXPECT_FALSE(point.last_part());
  point.beat(beat(0, true, {8}));
  EXPECT_EQ(point.last_part(), 8U);
}

TEST(DrainPoint, DoesNotWaitForInstancesThatHaveLeft) {
  DrainPoint point(2);
  point.left(1);
  point.left(17);
  point.beat(beat(17, true, {99}));
  point.beat(beat(0, true, {3}));
  EXPECT_EQ(point.last_part(), 3U);
}

}  // namespace
}  // namespace poprun::launcher
