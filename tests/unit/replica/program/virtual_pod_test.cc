/// Disturbed Pods, compared with simulations of every single replica.

#include "replica/program/virtual_pod.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "replica/compilation/job_inputs.h"
#include "replica/compiler/automatic.h"
#include "replica/program/host_contract.h"
#include "tests/unit/replica/training_job.h"

namespace poprun {
namespace {

/// Simulates a call of a function on every IPU of every replica, without classes, and without walking equal rounds as
/// one. Knows no I/O tiles and no rounds that must not overlap.
class EveryReplica {
 public:
  EveryReplica(const Program& program, const std::vector<Pace>& paces)
      : program_(program), paces_(paces), clocks_(paces.size(), std::vector<Clock>(std::max(program.ipus(), 1U))) {}

  Cycles call(const proto::Function& function) {
    run(function.steps());
    std::int64_t end = 0;
    for (const std::vector<Clock>& replica : clocks_) {
      for (const Clock& clock : replica) {
        end = std::max(end, clock.tiles);
      }
    }
    return Cycles{end};
  }

 private:
  struct Clock {
    std::int64_t tiles = 0;
    std::int64_t links = 0;
  };

  void run(const google::protobuf::RepeatedPtrField<proto::Step>& steps) {
    for (const proto::Step& step : steps) {
      if (step.has_repeat()) {
        for (std::uint32_t round = 0; round < step.repeat().count(); ++round) {
          run(step.repeat().steps());
        }
      } else if (step.has_call()) {
        run(find_function(program_, step.call().function())->steps());
      } else {
        one(step);
      }
    }
  }

  void one(const proto::Step& step) {
    const std::vector<std::uint32_t> ipus = ipus_of(program_, step);
    const bool together = is_between_replicas(step);
    std::int64_t last_tiles = 0;
    std::int64_t last_links = 0;
    for (const std::vector<Clock>& replica : clocks_) {
      for (const std::uint32_t ipu : ipus) {
        last_tiles = std::max(last_tiles, replica[ipu].tiles);
        last_links = std::max(last_links, replica[ipu].links);
      }
    }
    for (std::size_t r = 0; r < clocks_.size(); ++r) {
      std::int64_t ready = 0;
      for (const std::uint32_t ipu : ipus) {
        ready = std::max(ready, clocks_[r][ipu].tiles);
      }
      for (const std::uint32_t ipu : ipus) {
        Clock& clock = clocks_[r][ipu];
        clock.tiles = together ? last_tiles : ready;
        clock.links = together ? last_links : clock.links;
        advance(clock, step, together ? 1000 : paces_[r]);
      }
    }
  }

  static void advance(Clock& clock, const proto::Step& step, std::uint64_t pace) {
    const auto paced = [&](std::uint64_t cycles) { return static_cast<std::int64_t>((cycles * pace + 999) / 1000); };
    const proto::Cost& cost = step.cost();
    clock.tiles += paced(cost.sync_cycles()) + paced(cost.exchange_cycles()) + paced(cost.compute_cycles()) +
                   paced(cost.host_cycles()) + paced(cost.streaming_cycles());
    if (step.links() == proto::LINKS_BACKGROUND) {
      clock.links = std::max(clock.links, clock.tiles) + paced(cost.link_cycles());
    } else if (step.links() == proto::LINKS_AWAITED) {
      clock.tiles = std::max(clock.tiles, clock.links);
    } else {
      clock.tiles += paced(cost.link_cycles());
    }
  }

  const Program& program_;
  const std::vector<Pace>& paces_;
  std::vector<std::vector<Clock>> clocks_;
};

proto::RunConfig job_of(std::uint32_t replicas, const std::function<void(proto::RunConfig&)>& change) {
  proto::RunConfig job = testing::config(replicas, 4);
  job.mutable_model()->set_name("small-cnn");
  job.mutable_training()->set_gradient_accumulation(6);
  change(job);
  return job;
}

Program program_of(const proto::RunConfig& job) {
  return *plan_program(*compile_options(job, testing::dataset()));
}

void on_two_ipus(proto::RunConfig& job) {
  job.mutable_topology()->set_ipus_per_replica(2);
}

void with_buckets(proto::RunConfig& job) {
  job.mutable_training()->set_gradient_bucket_bytes(100'000);
}

void with_sharding(proto::RunConfig& job) {
  job.mutable_memory()->set_optimizer_state("off-chip");
  job.mutable_memory()->add_replicated_tensor_sharding("optimizer-state");
  job.mutable_memory()->set_sharding_min_elements(1);
}

TEST(VirtualPod, TheSlowestReplicaDeterminesTheStepAsInASimulationOfEachOne) {
  constexpr std::uint32_t kReplicas = 256;
  std::mt19937 random(5);
  for (const auto& change : {+[](proto::RunConfig&) {}, &on_two_ipus, &with_buckets, &with_sharding}) {
    const Program program = program_of(job_of(kReplicas, change));
    const proto::Function& train = *find_function(program, name_of(JobFunction::kTrain));
    for (int trial = 0; trial < 3; ++trial) {
      std::vector<Pace> paces;
      for (std::uint32_t r = 0; r < kReplicas; ++r) {
        paces.push_back(std::uniform_int_distribution<Pace>(trial == 0 ? 1000 : 700, trial == 0 ? 1000 : 1500)(random));
      }
      const Pace slowest = *std::ranges::max_element(paces);
      EXPECT_EQ(walk(program, train, nullptr, slowest).length, EveryReplica(program, paces).call(train)) << slowest;
    }
  }
}

TEST(VirtualPod, ASlowReplicaStretchesOnlyTheStepsInWhichItIsSlow) {
  const proto::RunConfig job = job_of(64, [](proto::RunConfig&) {});
  const Program program = program_of(job);
  const proto::Function& train = *find_function(program, name_of(JobFunction::kTrain));
  proto::WhatIf what_if;
  proto::Slowdown& slow = *what_if.add_slowdowns();
  slow.set_first_replica(37);
  slow.set_last_replica(37);
  slow.set_factor(1.3);
  slow.set_first_step(5);
  slow.set_last_step(6);
  VirtualPod pod(program, what_if, 64, 1);
  std::vector<Pace> paces(64, 1000);
  const Cycles usual = EveryReplica(program, paces).call(train);
  paces[37] = 1300;
  const Cycles slowed = EveryReplica(program, paces).call(train);

  EXPECT_GT(slowed, usual);
  EXPECT_LT(slowed.count() * 10, usual.count() * 13) << "the all-reduce is not slower";
  for (const auto& [step, expected] : {std::pair{1U, usual}, {4U, usual}, {5U, slowed}, {6U, slowed}, {7U, usual}}) {
    EXPECT_EQ(pod.time_of("train", step), expected) << step;
  }
  EXPECT_EQ(VirtualPod(program, what_if, 37, 1).time_of("train", 5), usual) << "the job ends at replica 36";
}

TEST(VirtualPod, OverlappingSlowdownsMultiply) {
  const Program program = program_of(job_of(8, [](proto::RunConfig&) {}));
  proto::WhatIf what_if;
  for (const auto& [first, last, factor] : {std::tuple{0U, 7U, 0.5}, {2U, 5U, 3.0}, {5U, 6U, 1.1}}) {
    proto::Slowdown& slow = *what_if.add_slowdowns();
    slow.set_first_replica(first);
    slow.set_last_replica(last);
    slow.set_factor(factor);
    slow.set_first_step(1);
    slow.set_last_step(10);
  }
  EXPECT_EQ(VirtualPod(program, what_if, 8, 1).pace(3), 1650U);
  EXPECT_EQ(VirtualPod(program, what_if, 5, 1).pace(3), 1500U);
  EXPECT_EQ(VirtualPod(program, what_if, 2, 1).pace(3), 500U);
  EXPECT_EQ(VirtualPod(program, what_if, 8, 1).pace(11), 1000U);
}

TEST(VirtualPod, TheLargestJitterOfAClassHasTheDistributionOfMaxima) {
  constexpr std::uint32_t kReplicas = 256;
  constexpr int kSteps = 4000;
  const Program program = program_of(job_of(2, [](proto::RunConfig&) {}));
  proto::WhatIf what_if;
  what_if.set_jitter(0.05);
  proto::Slowdown& slow = *what_if.add_slowdowns();
  slow.set_first_replica(10);
  slow.set_last_replica(19);
  slow.set_factor(1.08);
  slow.set_first_step(1);
  slow.set_last_step(kSteps);
  const VirtualPod pod(program, what_if, kReplicas, 7);
  std::mt19937_64 random(3);
  std::lognormal_distribution<double> jitter(0, 0.05);
  std::vector<double> drawn;
  std::vector<double> simulated;
  for (int step = 1; step <= kSteps; ++step) {
    drawn.push_back(pod.pace(static_cast<std::uint64_t>(step)) / 1000.0);
    double largest = 0;
    for (std::uint32_t r = 0; r < kReplicas; ++r) {
      largest = std::max(largest, jitter(random) * (r >= 10 && r <= 19 ? 1.08 : 1));
    }
    simulated.push_back(largest);
  }
  std::ranges::sort(drawn);
  std::ranges::sort(simulated);
  for (const int percent : {1, 10, 50, 90, 99}) {
    const auto at = static_cast<std::size_t>(kSteps * percent / 100);
    EXPECT_NEAR(drawn[at], simulated[at], percent == 99 ? 0.012 : 0.004) << percent;
  }
  EXPECT_EQ(VirtualPod(program, what_if, kReplicas, 7).pace(17), pod.pace(17)) << "draws depend on seed and step only";
  EXPECT_NE(VirtualPod(program, what_if, kReplicas, 8).pace(17), pod.pace(17));
}

TEST(VirtualPod, ALossCostsItsStepDetectionRestartReadingAndTheStepsSinceTheCheckpoint) {
  const Program program = program_of(job_of(64, [](proto::RunConfig&) {}));
  proto::WhatIf what_if;
  what_if.set_detection_seconds(30);
  what_if.set_checkpoint_every_steps(10);
  proto::Loss& loss = *what_if.add_losses();
  loss.set_replica(48);
  loss.set_step(25);
  loss.set_restart_seconds(60);
  const auto time_of = [&](const char* name) { return walk(program, *find_function(program, name)).length; };
  const Cycles step = time_of("train");
  const Cycles wait{std::llround(90 * program.device().clock_hz())};

  VirtualPod pod(program, what_if, 64, 1);
  EXPECT_EQ(pod.time_of("train", 24), step);
  EXPECT_EQ(pod.time_of("train", 25), step * 6 + wait + time_of("load")) << "21 to 24, and 25 twice";
  const proto::DisturbedTime job = pod.job(40, 64, 0.5);
  EXPECT_EQ(job.losses(), 1U);
  EXPECT_EQ(job.repeated_steps(), 4U);
  EXPECT_NEAR(job.total_seconds(), device_seconds(program, step * 45 + wait + time_of("load")) + 45 * 0.5, 1e-9);
  EXPECT_NEAR(job.lost_seconds(), device_seconds(program, step * 5 + wait + time_of("load")) + 5 * 0.5, 1e-9);
  EXPECT_DOUBLE_EQ(job.slowest_step_seconds(), device_seconds(program, step) + 0.5);
  EXPECT_EQ(VirtualPod(program, what_if, 48, 1).job(40, 64, 0).losses(), 0U) << "the job ends at replica 47";
  EXPECT_EQ(VirtualPod(program, what_if, 64, 1).job(24, 64, 0).losses(), 0U) << "the job ends before step 25";

  what_if.clear_checkpoint_every_steps();
  EXPECT_EQ(VirtualPod(program, what_if, 64, 1).job(40, 64, 0).repeated_steps(), 24U) << "the job begins anew";
}

}  // namespace
}  // namespace poprun
