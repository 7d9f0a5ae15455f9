/// Compute batches: micro-batches that are computed in pieces.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compilation/profile.h"
#include "replica/models/layers/model.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::compute_batch_test {
namespace {

using testing::config;
using testing::dataset;
using ::testing::HasSubstr;
using testing::Outcome;

proto::RunConfig in_pieces(proto::RunConfig config, std::uint32_t compute_batch) {
  config.mutable_data()->set_compute_batch_size(compute_batch);
  return config;
}

/// Returns a job with eight samples per step and replica.
proto::RunConfig job_of(std::uint32_t micro_batch, std::uint32_t replicas = 1) {
  proto::RunConfig job = config(replicas, micro_batch);
  job.mutable_training()->set_gradient_accumulation(8 / micro_batch);
  return job;
}

void expect_equal(const Outcome& a, const Outcome& b) {
  ASSERT_FALSE(a.records[0].tensors.empty());
  EXPECT_EQ(a.records[0].tensors, b.records[0].tensors);
  ASSERT_EQ(a.records[0].steps.size(), b.records[0].steps.size());
  for (std::size_t i = 0; i < a.records[0].steps.size(); ++i) {
    EXPECT_EQ(a.records[0].steps[i].loss, b.records[0].steps[i].loss);
    EXPECT_EQ(a.records[0].steps[i].accuracy, b.records[0].steps[i].accuracy);
  }
  EXPECT_EQ(a.results[0].last_evaluation.loss, b.results[0].last_evaluation.loss);
  EXPECT_EQ(a.results[0].last_evaluation.accuracy, b.results[0].last_evaluation.accuracy);
  EXPECT_EQ(a.results[0].last_evaluation.items, b.results[0].last_evaluation.items);
}

TEST(ComputeBatch, IsAMicroBatchOfItsSizeWhereTheItemsAreTheSame) {
  // On one replica, the micro-batches take the items in order, whatever their size.
  const Outcome small = testing::run(job_of(2));
  expect_equal(testing::run(in_pieces(job_of(4), 2)), small);
  expect_equal(testing::run(in_pieces(job_of(8), 2)), small);
}

TEST(ComputeBatch, IsAMicroBatchOfItsSizeInAPipelineToo) {
  proto::RunConfig job = job_of(8);
  job.mutable_topology()->set_ipus_per_replica(2);
  expect_equal(testing::run(in_pieces(job, 2)), testing::run(job_of(2)));
}

TEST(ComputeBatch, GivesEachReplicaTheItemsOfItsMicroBatches) {
  // The means are over the same items, but are summed in a different order.
  const Outcome whole = testing::run(job_of(4, 2));
  const Outcome pieces = testing::run(in_pieces(job_of(4, 2), 1));
  EXPECT_EQ(pieces.results[0].last_evaluation.items, whole.results[0].last_evaluation.items);
  EXPECT_EQ(pieces.records[0].steps[0].accuracy, whole.records[0].steps[0].accuracy);
  for (std::size_t i = 0; i < whole.records[0].steps.size(); ++i) {
    EXPECT_NEAR(pieces.records[0].steps[i].loss, whole.records[0].steps[i].loss, 1e-4);
  }
}

Program compiled(const proto::RunConfig& config) {
  auto program = compile(*compile_options(config, dataset()));
  EXPECT_TRUE(program) << program.error().message;
  return std::move(*program);
}

TEST(ComputeBatch, TakesLessMemoryThanTheMicroBatch) {
  proto::RunConfig job = config(1, 128);
  job.mutable_memory()->set_in_place(true);
  const std::uint64_t whole = compiled(job).memory(0).peak();
  const std::uint64_t pieces = compiled(in_pieces(job, 16)).memory(0).peak();
  EXPECT_LT(pieces * 3, whole * 2);
}

TEST(ComputeBatch, LeavesTheOtherBatchSizesAsTheyAre) {
  const proto::BatchSizes sizes = batch_sizes(in_pieces(job_of(4, 2), 2));
  EXPECT_EQ(sizes.compute_batch_size(), 2);
  EXPECT_EQ(sizes.micro_batch_size(), 4);
  EXPECT_EQ(sizes.replica_batch_size(), 8);
  EXPECT_EQ(sizes.global_batch_size(), 16);
}

TEST(ComputeBatch, IsRefusedWhereTheModelNormalisesOverTheBatch) {
  proto::RunConfig job = in_pieces(job_of(4), 2);
  job.mutable_model()->set_name("resnet18");
  job.mutable_model()->mutable_sizes()->insert({"classes", 10});
  proto::Dataset images = dataset();
  images.mutable_tensors(0)->set_sample_shape(0, 3);
  auto options = compile_options(job, images);
  ASSERT_TRUE(options) << options.error().message;
  const auto refused = compile(*options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_THAT(refused.error().message,
              HasSubstr("data.compute-batch-size = 2: resnet18 normalises over the micro-batch, "
                        "which is computed in 2 pieces"));
  job.mutable_model()->set_normalisation("group");
  EXPECT_TRUE(compile(*compile_options(job, images)));
}

TEST(ComputeBatch, HasNoEffectInInference) {
  proto::RunConfig job = in_pieces(job_of(4), 2);
  job.set_inference(true);
  EXPECT_EQ(compute_batch_size(job), 4);
}

}  // namespace
}  // namespace poprun::compute_batch_test
