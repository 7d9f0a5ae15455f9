#include <gmock/gmock.h>

#include "launcher/screen/display.h"
#include "launcher/screen/summary.h"

namespace poprun::launcher::progress_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

proto::StepMetrics step(std::uint64_t number, std::uint32_t epoch, double wall_seconds) {
  proto::StepMetrics metrics;
  metrics.set_step(number);
  metrics.set_epoch(epoch);
  metrics.set_loss(0.31239);
  metrics.set_accuracy(0.883);
  metrics.set_wall_seconds(wall_seconds);
  return metrics;
}

Progress at_step_340() {
  proto::JobShape shape;
  shape.set_total_steps(1404);
  shape.set_steps_per_epoch(234);
  shape.set_samples_per_step(256);
  Progress progress;
  progress.shape(shape);
  progress.step(step(320, 2, 20));
  progress.step(step(340, 2, 21));
  return progress;
}

TEST(Progress, IsOneLineWithSpeedAndTimeLeft) {
  EXPECT_EQ(at_step_340().line(std::string::npos),
            "step 340/1404  epoch 2/6  loss 0.3124  accuracy 88.3 %  5,120 samples/s  ETA 0:53");
}

TEST(Progress, IsNumbersToo) {
  const Progress progress = at_step_340();
  EXPECT_TRUE(progress.shape_known());
  EXPECT_EQ(progress.last().step(), 340U);
  EXPECT_DOUBLE_EQ(progress.samples_per_second(), 5120);
  EXPECT_FALSE(Progress{}.shape_known());
  EXPECT_EQ(Progress{}.samples_per_second(), 0);
}

TEST(Progress, FitsTheTerminal) {
  EXPECT_EQ(at_step_340().line(79), "step 340/1404  epoch 2/6  loss 0.3124  5,120 samples/s  ETA 0:53");
  EXPECT_EQ(at_step_340().line(59), "step 340/1404  epoch 2/6  loss 0.3124  ETA 0:53");
  EXPECT_EQ(at_step_340().line(40), "step 340/1404  epoch 2/6  ETA 0:53");
  EXPECT_EQ(at_step_340().line(24), "step 340/1404  ETA 0:53");
  EXPECT_EQ(at_step_340().line(10), "step 340/1");
}

TEST(Progress, BeforeTheFirstStepSaysSo) {
  EXPECT_EQ(Progress{}.line(80), "starting");
}

TEST(Progress, SaysNoSpeedAfterTheFirstStepAlone) {
  Progress progress;
  progress.step(step(1, 1, 0.33));
  EXPECT_EQ(progress.line(80).find("samples/s"), std::string::npos);
}

TEST(Progress, HasTimeLeftUntilTheLastStepOnly) {
  Progress progress = at_step_340();
  progress.step(step(1403, 6, 22));
  EXPECT_THAT(progress.line(200), HasSubstr("  ETA 0:01"));
  progress.step(step(1404, 6, 23));
  EXPECT_THAT(progress.line(200), Not(HasSubstr("ETA")));
}

TEST(Progress, SpeedIsThatOfTheLastSeconds) {
  Progress progress = at_step_340();
  for (int i = 1; i <= 60; ++i) {
    progress.step(step(340 + static_cast<std::uint64_t>(i), 2, 21 + i * 0.1));
  }
  EXPECT_THAT(progress.line(200), HasSubstr("  2,560 samples/s"));
}

TEST(Progress, OfInferenceCountsItems) {
  Progress progress;
  progress.outputs(0, 10'000, 100);
  EXPECT_EQ(progress.line(80), "starting");
  for (int i = 1; i <= 2000; ++i) {
    progress.outputs(static_cast<std::uint64_t>(i), 10'000, 100 + i * 0.001);
  }
  EXPECT_EQ(progress.done(), 2000U);
  EXPECT_EQ(progress.line(80), "2,000 of 10,000 items  1,000 items/s  ETA 0:08");
  EXPECT_EQ(progress.line(21), "2,000 of 10,000 items");
  progress.outputs(10'000, 10'000, 110);
  EXPECT_THAT(progress.line(80), Not(HasSubstr("ETA")));
}

TEST(ClockText, CountsHours) {
  EXPECT_EQ(clock_text(-1), "0:00");
  EXPECT_EQ(clock_text(727.4), "12:07");
  EXPECT_EQ(clock_text(10930), "3:02:10");
}

proto::Profile profile() {
  proto::Profile profile;
  profile.mutable_config()->mutable_device()->set_ipu("mk2");
  profile.mutable_outcome()->set_steps(1404);
  profile.mutable_outcome()->set_epochs(6);
  profile.mutable_outcome()->set_final_loss(0.25);
  profile.mutable_outcome()->set_test_accuracy(0.9132);
  profile.mutable_outcome()->set_test_loss(0.2412);
  profile.mutable_outcome()->set_test_items(10000);
  profile.mutable_wall()->set_startup_seconds(0.9);
  profile.mutable_wall()->set_training_seconds(60.5);
  profile.mutable_wall()->set_samples_per_second(5940.4);
  profile.mutable_config()->mutable_topology()->set_num_replicas(8);
  proto::Spread& operators = *profile.mutable_wall()->mutable_compute_seconds();
  operators.set_min(38.5);
  operators.set_mean(40);
  operators.set_max(52.25);
  operators.set_max_replica(5);
  operators.set_max_host("node1");
  proto::BatchSizes& sizes = *profile.mutable_batch_sizes();
  sizes.set_compute_batch_size(16);
  sizes.set_micro_batch_size(16);
  sizes.set_replica_batch_size(64);
  sizes.set_global_batch_size(512);
  profile.mutable_device()->set_step_seconds(115.2e-6);
  profile.mutable_device()->set_samples_per_second(555763);
  proto::IpuMemory& memory = *profile.add_planned_memory();
  memory.set_capacity(940572672);
  memory.set_peak(9961472);
  memory.set_always_live(3407872);
  memory.set_bytes_per_tile(638976);
  memory.set_fullest_tile(3);
  memory.set_fullest_tile_peak(87816);
  memory.set_tile_classes(76);
  return profile;
}

TEST(Summary, GivesEachFigureItsUnitAndClock) {
  EXPECT_EQ(summary(profile(), "out"),
            "test accuracy  91.32 % of 10,000 items\n"
            "test loss      0.2412\n"
            "final loss     0.2500 (last training step)\n"
            "steps          1,404 in 6 epochs\n"
            "batch sizes    compute 16, micro 16, replica 64, global 512 samples\n"
            "start-up       0.90 s wall, from command to first step\n"
            "training       60.50 s wall, 5,940 samples/s\n"
            "  operators    mean 40.00 s, min 38.50 s, max 52.25 s (replica 5, host node1)\n"
            "  exchange     mean 0.00 s, min 0.00 s, max 0.00 s (replica 0, host )\n"
            "  host streams mean 0.00 s, min 0.00 s, max 0.00 s (replica 0, host )\n"
            "device step    115.2 us, 555,763 samples/s (device clock, mk2, never compared)\n"
            "IPU memory     9.5 MiB peak of 897.0 MiB, 3.2 MiB always live\n"
            "  tiles        tile 3 is the fullest, 87,816 of 638,976 B; 76 kinds of tiles\n"
            "results in     out\n");
}

TEST(Summary, GivesTheGoodputAndWhereTheRestOfTheTimeWent) {
  proto::Profile trained = profile();
  proto::Goodput& goodput = *trained.mutable_goodput();
  goodput.set_ratio(0.8);
  goodput.set_total_seconds(100);
  goodput.set_attempts(1);
  goodput.set_step_seconds(75);
  goodput.set_evaluation_seconds(5);
  goodput.set_start_seconds(12);
  goodput.set_data_seconds(6);
  goodput.set_saving_seconds(2);
  EXPECT_THAT(summary(trained, "out"),
              HasSubstr("\ngoodput        80.0 % of 100.00 s wall: steps 75.00 s, evaluation 5.00 s\n"
                        "  lost         start 12.00 s, data 6.00 s, saving 2.00 s\n"));
  goodput.set_attempts(2);
  goodput.set_redone_seconds(1);
  goodput.set_redone_steps(3);
  goodput.set_down_seconds(1.5);
  EXPECT_THAT(summary(trained, "out"), HasSubstr("saving 2.00 s, redone 1.00 s (3 steps), down 1.50 s (1 restart)\n"));
}

TEST(Summary, GivesEachIpuItsTime) {
  proto::Profile two = profile();
  two.mutable_device()->set_utilisation(0.7504);
  for (const double busy : {0.0001152, 0.0000577}) {
    proto::IpuTime& time = *two.mutable_device()->add_ipus();
    time.set_busy_seconds(busy);
    time.set_idle_seconds(0.0001152 - busy);
  }
  EXPECT_THAT(summary(two, "out"), HasSubstr("\nutilisation    75.0 % of 2 IPUs\n"
                                             "IPU 0 time     115.2 us busy, 0.0 us idle\n"
                                             "IPU 1 time     57.7 us busy, 57.5 us idle\n"));
}

TEST(Summary, ListsAFewOfManyIpus) {
  proto::Profile many = profile();
  many.clear_planned_memory();
  for (std::uint64_t ipu = 0; ipu < 64; ++ipu) {
    proto::IpuTime& time = *many.mutable_device()->add_ipus();
    time.set_busy_seconds(ipu == 40 ? 0.0001 : 0.00005);
    time.set_idle_seconds(0.0001152 - time.busy_seconds());
    proto::IpuMemory& memory = *many.add_planned_memory();
    memory.set_capacity(940572672);
    memory.set_peak(ipu == 5 ? 9961472 : 3407872);
    memory.set_fullest_tile_peak(ipu == 5 ? 8000 : 4000);
  }
  const std::string text = summary(many, "out");
  EXPECT_THAT(text, HasSubstr("\nIPU 0 time     50.0 us busy, 65.2 us idle\n"
                              "IPU 1 time     50.0 us busy, 65.2 us idle\n"
                              "..             38 IPUs, which profile.json lists\n"
                              "IPU 40 time    100.0 us busy, 15.2 us idle: the busiest\n"
                              "..             22 IPUs, which profile.json lists\n"
                              "IPU 63 time    50.0 us busy, 65.2 us idle\n"));
  EXPECT_THAT(text, HasSubstr("\n..             3 IPUs, which profile.json lists\n"
                              "IPU 5 memory   9.5 MiB peak of 897.0 MiB, 0 B always live: the "
                              "fullest\n"));
}

TEST(Summary, SaysThatTheJobRanThoughItDoesNotFit) {
  proto::Profile over = profile();
  EXPECT_THAT(summary(over, "out"), Not(HasSubstr("out of memory")));
  over.set_out_of_memory(true);
  proto::IpuMemory& memory = *over.mutable_planned_memory(0);
  memory.set_bytes_per_tile(638976);
  memory.set_fullest_tile_peak(640000);
  EXPECT_THAT(
      summary(over, "out"),
      ::testing::AllOf(HasSubstr("\nout of memory  the job does not fit, but ran anyway (--allow-out-of-memory)\n"),
                       HasSubstr(", 640,000 of 638,976 B, 1,024 B over; ")));
}

TEST(Summary, GivesASingleFigureOfOneReplica) {
  proto::Profile alone = profile();
  alone.mutable_config()->mutable_topology()->set_num_replicas(1);
  EXPECT_THAT(summary(alone, "out"), HasSubstr("  operators    40.00 s\n"));
}

TEST(Summary, SaysNothingOfATestThatDidNotRun) {
  proto::Profile without = profile();
  without.mutable_outcome()->set_test_accuracy(-1);
  without.mutable_outcome()->set_test_items(0);
  without.mutable_outcome()->set_drained(true);
  EXPECT_THAT(summary(without, "out"), Not(HasSubstr("test")));
  EXPECT_THAT(summary(without, "out"), HasSubstr("stopped early on request"));
}

TEST(Summary, HasNoAccuracyOfALossThatKnowsNone) {
  proto::Profile regression = profile();
  regression.mutable_outcome()->set_test_accuracy(-1);
  EXPECT_THAT(summary(regression, "out"), StartsWith("test loss      0.2412 of 10,000 items\n"));
  Progress progress;
  proto::StepMetrics metrics = step(340, 2, 21);
  metrics.set_accuracy(-1);
  progress.step(metrics);
  EXPECT_THAT(progress.line(200), Not(HasSubstr("accuracy")));
}

}  // namespace
}  // namespace poprun::launcher::progress_test
