#include "launcher/job/checkpoints.h"

#include <gtest/gtest.h>

namespace poprun::launcher {
namespace {

constexpr std::uint64_t kSteps = 10'000;

/// Returns the step requested at `second`, if any, in a job that runs ten steps per second.
std::optional<std::uint64_t> at_second(CheckpointRequests& requests, double second, std::uint64_t begun = 0) {
  return requests.due(static_cast<std::uint64_t>(10 * second), kSteps, begun, second);
}

TEST(CheckpointRequests, AreAskedForSomeStepsAheadAndOnce) {
  CheckpointRequests requests(0);
  EXPECT_EQ(at_second(requests, 1), std::nullopt);
  requests.wish();
  EXPECT_EQ(at_second(requests, 2), 20 + 1 + 20);
  EXPECT_EQ(at_second(requests, 2.1), std::nullopt);
  EXPECT_FALSE(requests.came(40));
  EXPECT_TRUE(requests.came(41));
  EXPECT_FALSE(requests.came(42));
  EXPECT_EQ(at_second(requests, 60), std::nullopt);
}

TEST(CheckpointRequests, NameNoStepBehindTheLast) {
  CheckpointRequests requests(0);
  requests.wish();
  EXPECT_EQ(requests.due(99, 100, 0, 10), 100U);
}

TEST(CheckpointRequests, ComeAtIntervalsOfTime) {
  CheckpointRequests requests(30);
  EXPECT_EQ(at_second(requests, 1), std::nullopt);
  EXPECT_EQ(at_second(requests, 30.9), std::nullopt);
  EXPECT_EQ(at_second(requests, 31), 310 + 1 + 20);
  EXPECT_TRUE(requests.came(331));
  EXPECT_EQ(at_second(requests, 60), std::nullopt);
  EXPECT_TRUE(at_second(requests, 61));
}

TEST(CheckpointRequests, AreRepeatedWhereAReplicaHeardTooLate) {
  CheckpointRequests requests(0);
  at_second(requests, 1);
  requests.wish();
  ASSERT_EQ(at_second(requests, 2), 41U);
  EXPECT_EQ(at_second(requests, 8.9), std::nullopt);  // The parts for step 41 may still arrive.
  EXPECT_EQ(at_second(requests, 10), 100 + 1 + 20);
  EXPECT_TRUE(requests.came(121));
}

TEST(CheckpointRequests, AreNotRepeatedWhileTheCheckpointIsBeingStored) {
  CheckpointRequests requests(0);
  at_second(requests, 1);
  requests.wish();
  ASSERT_EQ(at_second(requests, 2), 41U);
  EXPECT_EQ(at_second(requests, 100, /*begun=*/41), std::nullopt);
  EXPECT_TRUE(requests.came(41));
  EXPECT_EQ(at_second(requests, 200), std::nullopt);
}

TEST(CheckpointRequests, AreRepeatedWhereItBrokeOff) {
  CheckpointRequests requests(0);
  at_second(requests, 1);
  requests.wish();
  ASSERT_EQ(at_second(requests, 2), 41U);
  EXPECT_EQ(at_second(requests, 50, /*begun=*/41), std::nullopt);
  EXPECT_TRUE(at_second(requests, 51, /*begun=*/0));
}

}  // namespace
}  // namespace poprun::launcher
