#include <gtest/gtest.h>

#include "launcher/verdict/slow_replicas.h"

namespace poprun::launcher {
namespace {

/// A job whose replicas need given numbers of seconds per step.
class StragglersTest : public ::testing::Test {
 protected:
  /// Reports `steps` further steps; returns the last straggler that was found during them.
  std::optional<Straggler> run(const std::vector<double>& seconds, std::uint64_t steps) {
    std::optional<Straggler> found;
    for (std::uint64_t step = 0; step < steps; ++step) {
      beat(seconds);
      const std::optional<Straggler> now = stragglers_.found();
      found = now ? now : found;
    }
    return found;
  }

  /// Reports one further step.
  void beat(const std::vector<double>& seconds) {
    totals_.resize(seconds.size());
    ++steps_;
    proto::Beat beat;
    for (std::size_t r = 0; r < seconds.size(); ++r) {
      totals_[r] += seconds[r];
      proto::ReplicaProgress& progress = *beat.add_replicas();
      progress.set_replica(static_cast<std::uint32_t>(r));
      progress.mutable_times()->set_steps(steps_);
      progress.mutable_times()->set_compute_seconds(totals_[r]);
    }
    stragglers_.beat(beat);
  }

  Stragglers stragglers_{4};
  std::uint64_t steps_ = 0;
  std::vector<double> totals_;
};

TEST_F(StragglersTest, AreNamedOnceWithTheFactorAndTheSteps) {
  EXPECT_FALSE(run({1, 1, 2.5, 1.2}, 29));
  const auto found = run({1, 1, 2.5, 1.2}, 1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->replica, 2U);
  EXPECT_EQ(found->others, 0U);
  EXPECT_DOUBLE_EQ(found->seconds_per_step, 2.5);
  EXPECT_DOUBLE_EQ(found->usual_seconds, 1);
  EXPECT_EQ(found->steps, 30U);
  EXPECT_FALSE(run({1, 1, 2.5, 1.2}, 100));
}

TEST_F(StragglersTest, GiveTheTimeOfEachReplica) {
  EXPECT_EQ(stragglers_.step_seconds(), (std::vector<double>{0, 0, 0, 0}));
  run({1, 1, 2.5, 1.25}, 2);
  EXPECT_EQ(stragglers_.step_seconds(), (std::vector<double>{1, 1, 2.5, 1.25})) << "before a stretch ends";
  run({1, 1, 2.5, 1.25}, 8);
  run({1, 1, 5, 1.25}, 9);
  EXPECT_EQ(stragglers_.step_seconds(), (std::vector<double>{1, 1, 2.5, 1.25})) << "of the last stretch";
  run({1, 1, 5, 1.25}, 1);
  EXPECT_EQ(stragglers_.step_seconds(), (std::vector<double>{1, 1, 5, 1.25}));
}

TEST_F(StragglersTest, TheMessageNamesTheReplicaItsHostAndBothTimes) {
  proto::Topology topology;
  topology.set_num_replicas(4);
  topology.set_num_instances(4);
  topology.set_ipus_per_replica(1);
  const JobState state(*place(topology, std::vector<Host>{{"node0"}, {"node1"}}), 0);
  for (int stretch = 1; stretch < Stragglers::kStretches; ++stretch) {
    run({1, 1, 1.9, 2}, Stragglers::kStretchSteps);
  }
  run({1, 1, 1.9, 2}, Stragglers::kStretchSteps - 1);
  beat({1, 1, 1.9, 2});
  EXPECT_EQ(stragglers_.news(state),
            "note: replica 3 (host node1) is 2.0 times as slow as the median of the others, as are 1 other: 2.00 s "
            "against 1.00 s in operators per step, over 30 steps; all replicas wait for it at each exchange");
  EXPECT_FALSE(stragglers_.news(state)) << "told once";
}

TEST_F(StragglersTest, OfOneHostAreCounted) {
  const auto found = run({1, 1, 1.9, 2}, 30);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->replica, 3U);
  EXPECT_EQ(found->others, 1U);
}

TEST_F(StragglersTest, AreNoneWhereAllAreAboutEqual) {
  EXPECT_FALSE(run({1, 1.4, 1.2, 1.3}, 200));
}

TEST_F(StragglersTest, AreNoneWhereEachIsSlowInTurn) {
  for (int round = 0; round < 20; ++round) {
    std::vector<double> seconds(4, 1.0);
    seconds[static_cast<std::size_t>(round) % 4] = 5;
    EXPECT_FALSE(run(seconds, Stragglers::kStretchSteps));
  }
}

TEST_F(StragglersTest, TheSlowestOfTheLastStretchIsKnownWhateverTheFactor) {
  run({1, 1.25, 1, 1}, 9);
  EXPECT_FALSE(stragglers_.slowest()) << "before the first stretch ends";
  run({1, 1.25, 1, 1}, 1);
  ASSERT_TRUE(stragglers_.slowest());
  EXPECT_EQ(stragglers_.slowest()->replica, 1U);
  EXPECT_DOUBLE_EQ(stragglers_.slowest()->seconds_per_step, 1.25);
  EXPECT_DOUBLE_EQ(stragglers_.slowest()->usual_seconds, 1);
  run({1, 1, 1, 3}, 40);
  ASSERT_EQ(stragglers_.slowest()->replica, 3U) << "named by now";
  run({2, 1, 1, 1}, 10);
  EXPECT_EQ(stragglers_.slowest()->replica, 0U) << "goes on after one was named";
}

TEST_F(StragglersTest, AreNoneInShortStretches) {
  EXPECT_FALSE(run({0.001, 0.001, 0.01, 0.001}, 500)) << "half a second of noise";
}

TEST_F(StragglersTest, OfTwoReplicasAreFound) {
  stragglers_ = Stragglers(2);
  EXPECT_EQ(run({1, 2}, 30)->replica, 1U);
}

TEST_F(StragglersTest, AreNoneOfOneReplica) {
  stragglers_ = Stragglers(1);
  EXPECT_FALSE(run({1}, 100));
  EXPECT_FALSE(stragglers_.slowest());
}

}  // namespace
}  // namespace poprun::launcher
