#include "launcher/outputs/replica_samples.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "launcher/outputs/read_file.h"
#include "tests/unit/temporary_folder.h"

namespace poprun::launcher {
namespace {

class ReplicaSamplesTest : public ::testing::Test {
 protected:
  static proto::Beat beat(std::uint32_t replica, std::uint64_t steps, double compute_seconds) {
    proto::Beat beat;
    proto::ReplicaProgress& progress = *beat.add_replicas();
    progress.set_replica(replica);
    progress.mutable_times()->set_steps(steps);
    progress.mutable_times()->set_compute_seconds(compute_seconds);
    return beat;
  }

  /// Writes what `samples` holds, and returns the file.
  std::string text(ReplicaSamples& samples) {
    samples.flush();
    disk_.post([] { return Status{}; }).wait();
    return *read_file(path_, 1 << 30);
  }

  testing::TemporaryFolder folder_;
  std::string path_ = folder_.path() / kReplicaSamples;
  DiskThread disk_;
};

TEST_F(ReplicaSamplesTest, HasARowForEachReplicaThatAdvanced) {
  ReplicaSamples samples(disk_, path_, 2);
  samples.take(beat(0, 0, 0), 1, 10);
  samples.take(beat(0, 3, 1.5), 1, 11);
  samples.take(beat(1, 4, 2), 1, 11.25);
  samples.take(beat(0, 3, 1.5), 1, 12);
  samples.take(beat(0, 5, 2.5), 1, 13);
  samples.take(beat(7, 5, 2.5), 1, 13);

  EXPECT_EQ(text(samples),
            "wall_seconds,attempt,replica,steps,compute_seconds\n"
            "0.000,1,0,3,1.500000\n"
            "0.250,1,1,4,2.000000\n"
            "2.000,1,0,5,2.500000\n");
}

TEST_F(ReplicaSamplesTest, ContinuesTheFileOfAnEarlierAttempt) {
  {
    ReplicaSamples first(disk_, path_, 1);
    first.take(beat(0, 1, 1), 1, 10);
    text(first);
  }
  ReplicaSamples second(disk_, path_, 1);
  second.go_on();
  second.flush();
  second.take(beat(0, 2, 1), 2, 20);

  EXPECT_EQ(text(second),
            "wall_seconds,attempt,replica,steps,compute_seconds\n"
            "0.000,1,0,1,1.000000\n"
            "0.000,2,0,2,1.000000\n");
}

TEST_F(ReplicaSamplesTest, BeginsTheFileIfTheEarlierAttemptWroteNoRow) {
  ReplicaSamples samples(disk_, path_, 1);
  samples.go_on();
  samples.take(beat(0, 2, 1), 2, 20);

  EXPECT_EQ(text(samples),
            "wall_seconds,attempt,replica,steps,compute_seconds\n"
            "0.000,2,0,2,1.000000\n");
}

TEST_F(ReplicaSamplesTest, LeavesTheFileOfAnEarlierJobAloneUntilItHasARow) {
  ReplicaSamples earlier(disk_, path_, 1);
  earlier.take(beat(0, 1, 1), 1, 10);
  const std::string before = text(earlier);

  ReplicaSamples samples(disk_, path_, 1);
  samples.take(beat(0, 0, 0), 1, 20);
  EXPECT_EQ(text(samples), before);

  samples.take(beat(0, 2, 1), 1, 21);
  EXPECT_EQ(text(samples),
            "wall_seconds,attempt,replica,steps,compute_seconds\n"
            "0.000,1,0,2,1.000000\n");
}

TEST_F(ReplicaSamplesTest, OfALongJobStaysSmall) {
  ReplicaSamples samples(disk_, path_, 1);
  for (std::uint64_t second = 1; second <= 1'000'000; ++second) {
    samples.take(beat(0, second, 1), 1, static_cast<double>(second));
  }

  const std::string all = text(samples);
  const auto rows = std::ranges::count(all, '\n');

  EXPECT_GT(rows, 2000);
  EXPECT_LT(rows, 12'000);
  EXPECT_NE(all.find(",0,1000,1.0"), std::string::npos) << "the first thousand are complete";
}

}  // namespace
}  // namespace poprun::launcher
