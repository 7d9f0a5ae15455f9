/// Kinds and precisions of gradient accumulation, reductions over replicas, and batch sizes, against closed forms.

#include <cmath>
#include <functional>
#include <set>

#include <gtest/gtest.h>

#include "replica/compilation/profile.h"
#include "replica/ops/face/shaped.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::accumulation_test {
namespace {

using testing::config;
using testing::dataset;
using testing::Forward;
using testing::run;

constexpr double kRate = 0x1p-9;

/// Returns a model whose loss is the sum of y(w). The weight w starts as [1, 1] and is float in any precision.
Forward sum_of(const std::function<TensorId(Builder&, TensorId w)>& y) {
  return [y](Builder& builder, const std::vector<TensorId>& /*inputs*/, bool /*training*/) {
    const TensorType type{DataType::kF32, {2}, Layout::kRowMajor};
    const TensorId w = builder.variable("w", type, Role::kParameter, {.value = 1});
    builder.keep_f32(w);
    const TensorId loss = builder.add_one("sum_to", {y(builder, w)}, shaped(Shape{}), "loss");
    const auto scalar = [&](const char* name, double value) {
      return builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", value}}, name);
    };
    return ModelOutputs{loss, scalar("correct", 0), scalar("count", 1)};
  };
}

/// Returns a model in which every micro-batch's gradient is `slope`.
Forward constant_slope(double slope) {
  return sum_of([slope](Builder& builder, TensorId w) {
    return builder.add_one("mul", {w, builder.constant("slopes", {2}, {slope, slope})}, {}, "y");
  });
}

proto::RunConfig job_of(std::uint32_t replicas, std::uint32_t micro_batches) {
  proto::RunConfig job = config(replicas, 1);
  proto::TrainingConfig& training = *job.mutable_training();
  training.set_steps(1);
  training.set_evaluate(false);
  testing::set_optimizer(job, "sgd");
  training.set_learning_rate(kRate);
  training.set_gradient_accumulation(micro_batches);
  return job;
}

/// Returns how far the first step moves the weight of `constant_slope`, in units of rate * slope.
double moved(const proto::RunConfig& job, double slope) {
  const float w = run(job, {}, testing::kToTheEnd, constant_slope(slope)).records[0].tensors.at("w")[0];
  return (1 - static_cast<double>(w)) / (kRate * slope);
}

double moved(const char* precision, const char* kind, const char* reduction) {
  proto::RunConfig job = job_of(4, 8);
  job.mutable_model()->set_precision(precision);
  job.mutable_training()->set_gradient_accumulation_kind(kind);
  job.mutable_training()->set_gradient_reduction(reduction);
  return moved(job, 1);
}

TEST(Accumulation, MovesByTheMeanOrTheSumOfMicroBatchesAndReplicas) {
  for (const char* precision : {"float", "half"}) {
    SCOPED_TRACE(precision);
    for (const char* mean : {"mean", "running-mean", ""}) {
      EXPECT_EQ(moved(precision, mean, "mean"), 1);
      EXPECT_EQ(moved(precision, mean, ""), 1);
      EXPECT_EQ(moved(precision, mean, "sum"), 4);
    }
    EXPECT_EQ(moved(precision, "sum", "mean"), 8);
    EXPECT_EQ(moved(precision, "sum", "sum"), 32);
  }
}

TEST(Accumulation, RoundsAfterEachMicroBatchInHalfButNotInFloat) {
  const float slope = 1 + 3 * 0x1p-10F;  // A half just above 1.
  proto::RunConfig job = job_of(1, 64);
  job.mutable_model()->set_precision("half");
  job.mutable_training()->set_gradient_accumulation_kind("sum");
  float rounded = 0;
  for (int i = 0; i < 64; ++i) {
    rounded = to_float(to_half(rounded + slope));
  }
  ASSERT_NE(rounded, 64 * slope);

  EXPECT_FLOAT_EQ(static_cast<float>(moved(job, slope)) * slope, rounded);
  job.mutable_training()->set_accumulator_precision("float");
  EXPECT_EQ(moved(job, slope), 64);
}

TEST(Accumulation, AsARunningMeanDoesNotOverflow) {
  // Four gradients of 2^14 add up to more than float16's largest number.
  proto::RunConfig job = job_of(1, 4);
  job.mutable_model()->set_precision("half");
  job.mutable_training()->set_check_finite(false);
  EXPECT_NEAR(moved(job, 0x1p13), 1, 1e-3);
  job.mutable_training()->set_learning_rate(kRate / 0x1p13);
  job.mutable_training()->set_gradient_accumulation_kind("running-mean");
  EXPECT_NEAR(moved(job, 0x1p14) * 0x1p13, 1, 1e-3);
  job.mutable_training()->set_gradient_accumulation_kind("mean");
  EXPECT_FALSE(std::isfinite(moved(job, 0x1p14)));
}

/// Returns the weights of small-cnn after two steps at `rate`.
std::map<std::string, std::vector<float>> weights(const char* kind, const char* reduction, double rate) {
  proto::RunConfig job = config(4, 2);
  job.mutable_training()->set_steps(2);
  testing::set_optimizer(job, "sgd");
  job.mutable_training()->set_gradient_accumulation(4);
  job.mutable_training()->set_gradient_accumulation_kind(kind);
  job.mutable_training()->set_gradient_reduction(reduction);
  job.mutable_training()->set_learning_rate(rate);
  return run(job).records[0].tensors;
}

TEST(Accumulation, OfSumsIsThatOfMeansAtARateDividedByAPowerOfTwo) {
  const auto reference = weights("mean", "mean", 0.125);
  EXPECT_EQ(weights("sum", "mean", 0.125 / 4), reference);
  EXPECT_EQ(weights("mean", "sum", 0.125 / 4), reference);
  EXPECT_EQ(weights("sum", "sum", 0.125 / 16), reference);
}

TEST(Accumulation, OfRunningMeansIsThatOfMeansUpToRounding) {
  const auto reference = weights("mean", "mean", 0.125);
  const auto running = weights("running-mean", "mean", 0.125);
  EXPECT_NE(running, reference);
  for (const auto& [name, tensor] : reference) {
    for (std::size_t i = 0; i < tensor.size(); ++i) {
      ASSERT_NEAR(running.at(name)[i], tensor[i], 1e-5) << name;
    }
  }
}

TEST(Accumulation, HoldsOneAccumulatorForEachUseOfAWeight) {
  // Two operations read w; the first of them reads it twice.
  const Forward cube = sum_of([](Builder& builder, TensorId w) {
    const TensorId square = builder.add_one("mul", {w, w}, {}, "square");
    return builder.add_one("mul", {square, w}, {}, "y");
  });
  for (const std::uint32_t micro_batches : {1U, 4U}) {
    const testing::Outcome outcome = run(job_of(2, micro_batches), {}, testing::kToTheEnd, cube);
    EXPECT_EQ(outcome.records[0].tensors.at("w")[0], static_cast<float>(1 - 3 * kRate));
    std::set<std::string> accumulators;
    for (const proto::Tensor& tensor : outcome.program.tensors()) {
      if (tensor.name().find("accumulator") != std::string::npos) {
        accumulators.insert(tensor.name());
      }
    }
    std::set<std::string> expected;
    if (micro_batches > 1) {  // Two uses of w, hence two accumulators.
      expected = {"w.accumulator", "w.accumulator.1"};
    }
    EXPECT_EQ(accumulators, expected);
  }
}

TEST(BatchSizes, CountTheSamplesOfAPassAReplicaAndAStep) {
  proto::RunConfig job = config(4, 16);
  job.mutable_training()->set_gradient_accumulation(8);
  const proto::BatchSizes training = batch_sizes(job);
  EXPECT_EQ(training.compute_batch_size(), 16U);
  EXPECT_EQ(training.micro_batch_size(), 16U);
  EXPECT_EQ(training.replica_batch_size(), 128U);
  EXPECT_EQ(training.global_batch_size(), 512U);
  job.set_inference(true);
  const proto::BatchSizes inference = batch_sizes(job);
  EXPECT_EQ(inference.replica_batch_size(), 16U) << "nothing is accumulated";
  EXPECT_EQ(inference.global_batch_size(), 64U);
}

}  // namespace
}  // namespace poprun::accumulation_test
