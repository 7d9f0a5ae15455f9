/// Replicas on one host that share weights and optimiser state, and divide their updates, get the results of replicas
/// that share nothing, to the bit.

#include <string>

#include <gtest/gtest.h>

#include "tests/unit/replica/training_job.h"

namespace poprun::sharing_test {
namespace {

using namespace testing;  // NOLINT: the made-up job.

void expect_equal(const Outcome& shared, const Outcome& own) {
  for (std::size_t r = 0; r < own.records.size(); ++r) {
    EXPECT_EQ(shared.records[r].tensors, own.records[r].tensors) << "replica " << r;
    ASSERT_EQ(shared.records[r].steps.size(), own.records[r].steps.size());
    for (std::size_t s = 0; s < own.records[r].steps.size(); ++s) {
      EXPECT_EQ(shared.records[r].steps[s].loss, own.records[r].steps[s].loss) << "step " << s;
    }
    EXPECT_EQ(shared.records[r].evaluations.size(), own.records[r].evaluations.size());
  }
}

/// Runs the job with shared and with private images, and with NaN in every byte that nobody may read.
void expect_no_difference(proto::RunConfig job) {
  job.mutable_memory()->set_in_place(true);
  job.mutable_memory()->set_private_images(true);
  const Outcome own = run(job);
  job.mutable_memory()->set_private_images(false);
  expect_equal(run(job), own);
  job.mutable_memory()->set_poison_dead(true);
  expect_equal(run(job), own);
}

class EveryOptimizer : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryOptimizer, UpdatesSharedWeightsAsPrivateOnes) {
  proto::RunConfig job = config(3, 2);
  set_optimizer(job, GetParam());
  job.mutable_training()->set_learning_rate(0.01);

  expect_no_difference(job);
}

INSTANTIATE_TEST_SUITE_P(Sharing, EveryOptimizer,
                         ::testing::Values("sgd", "momentum", "adam", "adamw", "lamb", "lars", "lion", "adafactor",
                                           "muon"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(Sharing, GradientsThatAreClippedOrAccumulatedAreReadWhole) {
  proto::RunConfig job = config(4, 2);
  set_optimizer(job, "adam");
  job.mutable_training()->set_clip_norm(0.5);
  job.mutable_training()->set_gradient_accumulation(2);

  expect_no_difference(job);
}

TEST(Sharing, WeightsInHalfPrecisionWithMasterCopiesAreShared) {
  proto::RunConfig job = config(2, 4);
  job.mutable_model()->set_precision("half");
  job.mutable_training()->set_master_weights(true);
  job.mutable_training()->set_loss_scaling(128);

  expect_no_difference(job);
}

TEST(Sharing, OwnersOfWholeTensorsUpdateMasterWeightsAndTheirCopies) {
  for (const std::uint32_t replicas : {2U, 5U, 16U}) {  // 16 replicas are more than there are parameters.
    proto::RunConfig job = config(replicas, 2);
    set_optimizer(job, "lamb");
    job.mutable_model()->set_precision("half");
    job.mutable_training()->set_master_weights(true);
    job.mutable_training()->set_loss_scaling(128);
    job.mutable_training()->set_clip_norm(0.5);
    job.mutable_training()->set_gradient_accumulation(2);

    expect_no_difference(job);
  }
}

TEST(Sharing, OwnersUpdateTheWeightsOfEachIpu) {
  for (const char* optimizer : {"lamb", "adafactor", "muon"}) {
    proto::RunConfig job = config(3, 2);
    set_optimizer(job, optimizer);
    job.mutable_training()->set_learning_rate(0.01);
    job.mutable_topology()->set_ipus_per_replica(2);
    job.mutable_training()->set_gradient_accumulation(4);

    expect_no_difference(job);
  }
}

TEST(Sharing, StagesOnTwoIpusShareTheWeightsOfEach) {
  proto::RunConfig job = config(2, 2);
  job.mutable_topology()->set_ipus_per_replica(2);
  job.mutable_training()->set_gradient_accumulation(4);

  expect_no_difference(job);
}

TEST(Sharing, ShardedStateStaysPrivate) {
  proto::RunConfig job = config(4, 2);
  set_optimizer(job, "adam");
  job.mutable_memory()->add_replicated_tensor_sharding("optimizer-state");
  job.mutable_memory()->set_sharding_min_elements(8192);

  expect_no_difference(job);
}

}  // namespace
}  // namespace poprun::sharing_test
