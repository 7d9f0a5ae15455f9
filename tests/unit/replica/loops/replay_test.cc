#include "replica/loops/replay.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/local/local_world.h"
#include "replica/compilation/job_inputs.h"
#include "replica/compilation/job_length.h"
#include "replica/loops/training_loop.h"
#include "tests/unit/replica/compiled.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

proto::RunConfig replayed(std::uint32_t replicas, std::uint64_t every = 1) {
  proto::RunConfig job = config(replicas, 4);
  job.mutable_training()->set_evaluate(false);
  job.mutable_corruption()->set_replay_every(every);
  return job;
}

void flip(proto::RunConfig& job, std::uint32_t replica, const std::string& tensor, std::uint64_t step) {
  proto::BitFlip& flip = *job.mutable_corruption()->add_flips();
  flip.set_replica(replica);
  flip.set_tensor(tensor);
  flip.set_step(step);
}

/// Runs a job and returns the number and the message of the replica that reports why it ended.
std::string end_of(const proto::RunConfig& job) {
  const std::uint32_t replicas = job.topology().num_replicas();
  const auto program = compile(*compile_options(job, dataset()));
  const auto training = training_options(job, dataset());
  auto world = LocalWorld::create({.replicas = replicas});
  EXPECT_TRUE(program && training && world);
  const HostWeights none;
  std::once_flag ends;
  std::string message;
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < replicas; ++r) {
    threads.emplace_back([&, r] {
      Progress progress;
      const auto stream = [&](ReplicaId of, std::uint64_t first) {
        return std::make_unique<SampleStream>(0, ~std::uint64_t{0}, index_of(of), replicas,
                                              job.data().micro_batch_size(), first);
      };
      TrainingLoop loop(*program, *training,
                        {.communicator = (*world)->communicator(ReplicaId{r}),
                         .progress = progress,
                         .reporter = nullptr,
                         .initial_weights = none,
                         .streams = [&, r](JobStream, std::uint64_t first) { return stream(ReplicaId{r}, first); },
                         .peer_stream = stream});
      const auto result = loop.run();
      std::call_once(ends, [&] {
        if (!result) {
          message = fmt::format("{} {}", r, result.error().message);
          if (message.find("silent") != std::string::npos) {  // The others wait in a barrier for the end of the job.
            EXPECT_TRUE((*world)->communicator(ReplicaId{r}).barrier());
          }
        }
      });
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return message;
}

/// Returns the steps that compute in "train", including those of called functions, and how many of them are compared.
std::pair<std::size_t, std::size_t> coverage(const Program& program, const ReplayPlan& plan) {
  std::size_t computing = 0;
  std::size_t compared = 0;
  const auto visit = [&](const auto& self, const auto& steps) -> void {
    for (const proto::Step& step : steps) {
      self(self, step.repeat().steps());
      if (step.has_call()) {
        self(self, find_function(program, step.call().function())->steps());
      }
      const bool writes_gradients = std::ranges::any_of(step.execute().outputs(), [&](std::uint32_t id) {
        return program.tensors(static_cast<int>(id)).name().ends_with(".gradient");
      });
      computing += writes_gradients ? 1U : 0U;
      const auto found = plan.compared.find(step.number());
      compared += writes_gradients && found != plan.compared.end() && !found->second.empty() ? 1U : 0U;
    }
  };
  visit(visit, find_function(program, "train")->steps());
  return {computing, compared};
}

TEST(Replay, OfEveryStepLeavesResultsAndDeviceTimeAsTheyAre) {
  for (const std::uint32_t replicas : {2U, 3U, 4U}) {
    proto::RunConfig job = replayed(replicas);
    job.mutable_training()->set_gradient_accumulation(3);
    if (replicas == 3) {
      job.mutable_training()->set_gradient_reduction("every-micro-batch");
    }
    const Outcome replays = run(job);
    job.clear_corruption();
    const Outcome plain = run(job);
    EXPECT_EQ(replays.records[0].tensors, plain.records[0].tensors);
    EXPECT_EQ(replays.results[0].device_time, plain.results[0].device_time);
    EXPECT_THAT(replays.records[0].notes, Contains(HasSubstr("in 3 steps, other replicas computed every micro-batch")));
    EXPECT_THAT(plain.records[0].notes, Not(Contains(HasSubstr("SHA-256"))));
  }
}

TEST(Replay, ComparesEveryGradientOfAMicroBatch) {
  for (const std::string model : {"small-cnn", "resnet18", "mlp"}) {
    for (const std::uint32_t accumulation : {1U, 3U}) {
      proto::RunConfig job = replayed(2);
      job.mutable_model()->set_name(model);
      job.mutable_training()->set_gradient_accumulation(accumulation);
      const auto program = compile(*compile_options(job, dataset()));
      ASSERT_TRUE(program) << program.error().message;
      const auto plan = plan_replay(*program, 2);
      ASSERT_TRUE(plan) << plan.error().message;
      const auto [computing, compared] = coverage(*program, *plan);
      EXPECT_GE(computing, 6U);
      EXPECT_EQ(compared, computing) << model;
    }
  }
}

TEST(Replay, IsRefusedIfAMicroBatchDependsOnAllReplicas) {
  proto::RunConfig job = replayed(4);
  job.mutable_model()->set_name("resnet18");
  for (const std::uint32_t span : {2U, 4U}) {
    job.mutable_model()->set_norm_span(span);
    const auto program = compile(*compile_options(job, dataset()));
    ASSERT_TRUE(program) << program.error().message;
    const auto plan = plan_replay(*program, 4);
    if (span == 2) {
      ASSERT_TRUE(plan) << plan.error().message;
      EXPECT_EQ(plan->group, 2U);
      const auto [computing, compared] = coverage(*program, *plan);
      EXPECT_EQ(compared, computing);
    } else {
      EXPECT_THAT(plan.error().message, HasSubstr("all replicas share means in every micro-batch (model.norm-span)"));
    }
  }
}

TEST(Replay, IsRefusedIfGroupsOfTwoSizesTogetherAreAllReplicas) {
  proto::RunConfig job = replayed(6);
  job.mutable_model()->set_name("resnet18");
  job.mutable_model()->set_norm_span(2);
  auto program = compile(*compile_options(job, dataset()));
  ASSERT_TRUE(program) << program.error().message;
  ASSERT_TRUE(plan_replay(*program, 6));
  for (proto::Function& function : *program->mutable_functions()) {
    for (proto::Step& step : *function.mutable_steps()) {
      if (step.all_reduce().group() == 2) {
        step.mutable_all_reduce()->set_group(3);
        const auto plan = plan_replay(*program, 6);
        ASSERT_FALSE(plan);
        EXPECT_THAT(plan.error().message, HasSubstr("no other replica can compute it again"));
        return;
      }
    }
  }
  FAIL() << "no exchange within a group";
}

TEST(Replay, NamesReplicaTensorAndStepOfAFlippedBit) {
  proto::RunConfig job = replayed(4);
  job.mutable_training()->set_gradient_accumulation(2);
  const auto program = compile(*compile_options(job, dataset()));
  const auto plan = plan_replay(*program, 4);
  ASSERT_TRUE(plan);
  std::vector<std::string> tensors;
  for (const auto& [step, written] : plan->compared) {
    for (const std::uint32_t tensor : written) {
      tensors.push_back(program->tensors(static_cast<int>(tensor)).name());
    }
  }
  std::ranges::sort(tensors);
  const auto same = std::ranges::unique(tensors);
  tensors.erase(same.begin(), same.end());
  ASSERT_GE(tensors.size(), 20U);
  for (std::size_t k = 0; k < 10; ++k) {
    const std::string& tensor = tensors[k * tensors.size() / 10];
    const auto replica = static_cast<std::uint32_t>(k % 4);
    const std::uint64_t step = 1 + k % 3;
    proto::RunConfig flipped = job;
    flip(flipped, replica, tensor, step);
    EXPECT_THAT(end_of(flipped), AllOf(HasSubstr(fmt::format("silent data corruption in step {}: ", step)),
                                       HasSubstr(fmt::format("replica {} computed a wrong '{}' of ", replica, tensor)),
                                       HasSubstr(fmt::format("(replicas {} and {} agree on another value)",
                                                             (replica + 2) % 4, (replica + 1) % 4))));
  }
}

TEST(Replay, NamesAWrongReplicaOfTwo) {
  proto::RunConfig job = replayed(2);
  flip(job, 1, "conv2", 2);
  EXPECT_THAT(end_of(job), HasSubstr("1 silent data corruption in step 2: replica 1 computed a wrong 'conv2' of conv2d "
                                     "in micro-batch 1, forward part of stage 0 on IPU 0 (replica 0 computed it twice, "
                                     "with one result)"));
}

TEST(Replay, FindsAWrongCopyOfAWeightBeforeTheNextReplayedStep) {
  proto::RunConfig job = replayed(4, 3);
  job.mutable_memory()->set_private_images(true);
  flip(job, 2, "fc1.weight", 2);
  EXPECT_THAT(end_of(job), HasSubstr("2 silent data corruption before step 3: 'fc1.weight' is wrong on replica 2 (3 "
                                     "other copies agree)"));
  job = replayed(2, 3);
  job.mutable_memory()->set_private_images(true);
  flip(job, 1, "fc1.weight", 3);
  EXPECT_THAT(end_of(job), HasSubstr("before step 3: 'fc1.weight' differs between replica "));
}

TEST(Replay, FindsWrongStateAfterTheLastStep) {
  proto::RunConfig job = replayed(3, 3);
  job.mutable_memory()->set_private_images(true);
  flip(job, 1, "fc2.bias.momentum", 3);
  job.mutable_corruption()->set_replay_every(2);
  EXPECT_THAT(end_of(job), HasSubstr("before step 4: 'fc2.bias"));
}

TEST(Replay, SaysWhenNothingComparesTheWeights) {
  EXPECT_THAT(run(replayed(2)).records[0].notes,
              Contains(HasSubstr("nothing compares weights, which the replicas of this host share")));
  proto::RunConfig job = replayed(2);
  job.mutable_memory()->set_private_images(true);
  EXPECT_THAT(run(job).records[0].notes, Contains(HasSubstr("all copies of the weights were equal")));
}

TEST(BitFlip, OfAnUnknownTensorIsRefusedWithASimilarName) {
  proto::RunConfig job = replayed(2);
  flip(job, 1, "conv1.weigth", 1);
  EXPECT_THAT(end_of(job), HasSubstr("--flip-bit = 1:conv1.weigth@1: no training step has a tensor of this name in "
                                     "In-Processor Memory; did you mean conv1.weight?"));
  job = replayed(2);
  flip(job, 1, "conv1", 4);
  EXPECT_THAT(end_of(job), HasSubstr("--flip-bit = 1:conv1@4: the job has steps 1 to 3"));
}

TEST(BitFlip, WithoutReplaysChangesTheWeights) {
  proto::RunConfig job = replayed(2);
  job.clear_corruption();
  const Outcome plain = run(job);
  flip(job, 1, "fc1.weight", 2);
  const Outcome flipped = run(job);
  EXPECT_EQ(flipped.records[0].steps[0].loss, plain.records[0].steps[0].loss);
  EXPECT_NE(flipped.records[0].tensors, plain.records[0].tensors);
}

}  // namespace
}  // namespace poprun::testing
