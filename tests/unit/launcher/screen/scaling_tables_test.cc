#include "launcher/screen/scaling_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

proto::ScaledJob job(const char* scaling, std::uint64_t replicas, double efficiency) {
  proto::ScaledJob job;
  job.set_scaling(scaling);
  job.set_replicas(replicas);
  job.set_ipus(4 * replicas);
  job.mutable_batch_sizes()->set_global_batch_size(8 * replicas);
  job.set_step_seconds(0.01);
  job.set_samples_per_second(800.0 * static_cast<double>(replicas) * efficiency);
  job.set_efficiency(efficiency);
  job.set_all_reduce_seconds(0.002);
  job.set_host_seconds(0.000001);
  job.set_peak_bytes(100 << 20);
  job.set_capacity_bytes(200 << 20);
  job.set_fits(true);
  job.set_compared_error(0.04);
  return job;
}

TEST(ScalingTables, PrintPartsInPercentAndEqualMemoryOnce) {
  proto::ScaleAnswer answer;
  *answer.add_jobs() = job("weak", 1, 1);
  *answer.add_jobs() = job("weak", 16, 0.9);
  *answer.add_jobs() = job("weak", 64, 0.5);
  answer.mutable_jobs(2)->set_peak_bytes(300 << 20);
  answer.mutable_jobs(2)->set_fits(false);
  *answer.add_jobs() = job("strong", 1, 1);
  proto::ScaledJob& refused = *answer.add_jobs();
  refused.set_scaling("strong");
  refused.set_replicas(16);
  refused.set_ipus(64);
  refused.set_refusal("8 samples cannot be divided among 16 replicas");

  const std::string text = scaling_tables(answer, "mk2");

  EXPECT_THAT(text, StartsWith("# weak scaling: each replica keeps its batch\n"
                               "replicas    IPUs         batch       step  samples/s effic. exch. copy host idle\n"
                               "       1       4             8  10.000 ms        800  1.000  20.0    - <0.1    -\n"
                               "      16      64           128  10.000 ms     11,520  0.900  20.0    - <0.1    -\n"
                               "      64     256           512  10.000 ms     25,600  0.500  20.0    - <0.1    -\n"
                               "memory of the fullest IPU with 1 to 16 replicas: 100.0 MiB of 200.0 MiB\n"
                               "  with 64 replicas: 300.0 MiB of 200.0 MiB, which does not fit\n"
                               "\n# strong scaling"));
  EXPECT_THAT(text, HasSubstr("\n      16      64  8 samples cannot be divided among 16 replicas\n"));
}

TEST(ScalingTables, PrintTheWholeJobWithItsEnergyAndCostIfTheyAreKnown) {
  proto::ScaleAnswer answer;
  for (const std::uint64_t replicas : {1U, 16U}) {
    proto::ScaledJob& added = *answer.add_jobs();
    added = job("weak", replicas, 1);
    added.set_steps(16'000 / replicas);
    added.set_run_seconds(160.0 / static_cast<double>(replicas));
  }
  EXPECT_THAT(scaling_tables(answer, "mk2"), HasSubstr("the whole job:\n"
                                                       "replicas         steps   device time\n"
                                                       "       1        16,000       2.7 min\n"
                                                       "      16         1,000       10.00 s\n"));
  answer.mutable_jobs(0)->set_run_kilowatt_hours(0.0533);
  answer.mutable_jobs(0)->set_run_cost(1.5);
  EXPECT_THAT(scaling_tables(answer, "mk2"),
              HasSubstr("replicas         steps   device time            energy            cost\n"
                        "       1        16,000       2.7 min        0.0533 kWh            1.50\n"));
}

TEST(ScalingTables, SayWhereTheComparisonWithChipsEnds) {
  proto::ScaleAnswer answer;
  *answer.add_jobs() = job("weak", 32, 1);
  EXPECT_THAT(scaling_tables(answer, "mk2"), HasSubstr("within 4 % of chips\n"));
  *answer.add_jobs() = job("weak", 33, 1);
  EXPECT_THAT(scaling_tables(answer, "mk2"), HasSubstr("within 4 % of chips, but only up to 128 IPUs\n"));
  EXPECT_EQ(scaling_tables({}, "mk2"), "");
}

}  // namespace
}  // namespace poprun::launcher
