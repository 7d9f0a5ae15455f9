#include "replica/engine/value_judge.h"

#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/local/local_world.h"
#include "replica/base/half.h"
#include "tests/unit/replica/compiled.h"
#include "tests/unit/replica/probe.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::value_judge_test {
namespace {

using testing::config;
using testing::dataset;
using testing::f32;
using ::testing::HasSubstr;
using testing::set_optimizer;

TensorType f16(Shape shape) {
  return {DataType::kF16, std::move(shape), Layout::kRowMajor};
}

TEST(Finite, FindsTheFirstNumberThatIsNone) {
  std::vector<float> values(100, 1.5F);
  const auto bytes = std::as_bytes(std::span(values));
  EXPECT_FALSE(find_not_finite(f32({100}), bytes));
  values[70] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(find_not_finite(f32({100}), bytes)->what, "infinity");
  EXPECT_EQ(find_not_finite(f32({100}), bytes)->element, 70);
  values[80] = std::nanf("");
  EXPECT_EQ(find_not_finite(f32({100}), bytes)->what, "NaN") << "the worse of the two";
  EXPECT_EQ(find_not_finite(f32({100}), bytes)->element, 80);
  std::vector<Half> halves(33, 0x7BFF);
  EXPECT_FALSE(find_not_finite(f16({33}), std::as_bytes(std::span(halves))));
  halves[32] = 0xFC00;
  EXPECT_EQ(find_not_finite(f16({33}), std::as_bytes(std::span(halves)))->element, 32);
}

TEST(Finite, AnExtremeIsAnInfinityOrTheLargestNumberThereIs) {
  const auto extreme = [](float value, DataType result) {
    const std::vector<float> values = {1.0F, value, -2.0F};
    return has_extreme(f32({3}), std::as_bytes(std::span(values)), result);
  };
  EXPECT_TRUE(extreme(-std::numeric_limits<float>::infinity(), DataType::kF32));
  EXPECT_TRUE(extreme(std::numeric_limits<float>::lowest(), DataType::kF32));
  EXPECT_FALSE(extreme(-3.4e38F, DataType::kF32));
  EXPECT_TRUE(extreme(-65504.0F, DataType::kF16));
  EXPECT_FALSE(extreme(-65503.0F, DataType::kF16));
  EXPECT_FALSE(extreme(65504.0F, DataType::kF32));
  const std::vector<Half> halves = {0x0001, 0xFBFF};
  EXPECT_TRUE(has_extreme(f16({2}), std::as_bytes(std::span(halves)), DataType::kF32));
  EXPECT_FALSE(has_extreme(f16({1}), std::as_bytes(std::span(halves)), DataType::kF16));
}

/// Returns the error that ends a job with one replica.
Error failure_of(const proto::RunConfig& job) {
  const auto program = compile(*compile_options(job, dataset()));
  EXPECT_TRUE(program);
  const auto training = training_options(job, dataset());
  auto world = LocalWorld::create({.replicas = 1});
  testing::Progress progress;
  const HostWeights weights;
  TrainingLoop loop(*program, *training,
                    {.communicator = (*world)->communicator(ReplicaId{0}),
                     .progress = progress,
                     .reporter = nullptr,
                     .initial_weights = weights,
                     .streams = [](JobStream /*stream*/, std::uint64_t /*first*/) {
                       return std::make_unique<testing::SampleStream>(0, 64, 0, 1, 4);
                     }});
  const auto result = loop.run();
  EXPECT_FALSE(result);
  return result ? Error{} : result.error();
}

TEST(Finite, StopsTheJobWithOperatorTensorStepAndReplica) {
  proto::RunConfig job = config(1, 4);
  job.mutable_model()->set_precision("half");
  job.mutable_training()->set_loss_scaling(1e6);

  const Error error = failure_of(job);

  EXPECT_EQ(error.code, ErrorCode::kData);
  EXPECT_THAT(error.message, HasSubstr("infinity in element"));
  EXPECT_THAT(error.message, HasSubstr("produced by softmax_cross_entropy_gradient in step 1 on replica 0"));
}

TEST(Finite, WeightsThatAnUpdateSpoiledAreNamedByWhoReadsThem) {
  proto::RunConfig job = config(1, 4);
  job.mutable_training()->set_learning_rate(1e38);
  set_optimizer(job, "momentum", {{"momentum", 0}});
  job.mutable_training()->set_weight_decay(1e6);

  EXPECT_THAT(failure_of(job).message, HasSubstr("read by conv2d in step 2 on replica 0"));

  job.mutable_training()->set_steps(1);
  job.mutable_training()->set_evaluate(false);
  EXPECT_THAT(failure_of(job).message, HasSubstr("'conv1.bias' f32[32], read by the host in step"));
}

}  // namespace
}  // namespace poprun::value_judge_test
