/// Stages that share IPUs, and stages without gradients: their results are bit-identical to the plain job's.

#include <gtest/gtest.h>

#include "replica/models/layers/layers.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::stage_mapping_test {
namespace {

using testing::config;
using testing::dataset;
using testing::Outcome;
using testing::run_program;

/// Builds layers fc1 to fc5, of which the first and the last share their weight.
ModelOutputs five_layers(Builder& builder, const std::vector<TensorId>& tensors, bool /*training*/) {
  constexpr std::int64_t kWidth = 28;
  const std::int64_t batch = builder.type(tensors[0]).shape[0];
  TensorId x = layers::normalize(builder, tensors[0], testing::kMean, testing::kDeviation);
  std::vector<TensorId> weights;
  for (const std::string name : {"fc1", "fc2", "fc3", "fc4", "fc5"}) {
    builder.layer(name);
    if (weights.empty()) {
      x = layers::reshape(builder, "rows", x, {batch * kWidth, kWidth});
    }
    weights.push_back(name == "fc5"
                          ? weights[0]
                          : builder.variable(name + ".weight", {DataType::kF32, {kWidth, kWidth}, Layout::kRowMajor},
                                             Role::kParameter, {Distribution::kUniform, 0.3}));
    x = builder.add_one("linear", {x, weights.back()}, {}, name);
    x = layers::relu(builder, name + ".relu", x);
  }
  x = layers::reshape(builder, "flat", x, {batch, kWidth * kWidth});
  const ModelInputs inputs{.names = {"images", "labels"}, .tensors = tensors, .classes = 10, .sizes = {}};
  return layers::score(builder, layers::linear(builder, "head", x, 10), inputs, "loss");
}

/// The number of layers in each stage, and the IPU of each stage.
struct Mapping {
  std::string name;
  std::vector<std::int64_t> layers;
  std::vector<std::uint32_t> ipu_of_stage;
};

const std::vector<Mapping>& mappings() {
  static const std::vector<Mapping> all = {{"one stage an IPU", {1, 1, 1, 1, 1}, {0, 1, 2, 3, 4}},
                                           {"IPU 0 revisited", {1, 1, 1, 1, 1}, {0, 1, 2, 3, 0}},
                                           {"IPUs in turns", {1, 1, 1, 1, 1}, {0, 1, 0, 1, 0}},
                                           {"several stages on each IPU", {1, 1, 1, 2}, {0, 0, 1, 1}},
                                           {"all stages on one IPU", {2, 1, 2}, {0, 0, 0}}};
  return all;
}

/// Returns a job of two steps of five micro-batches on two replicas, with dead bytes as NaN.
proto::RunConfig job_of(bool half) {
  proto::RunConfig job = config(2, 2);
  job.mutable_training()->set_steps(2);
  job.mutable_training()->set_gradient_accumulation(5);
  job.mutable_memory()->set_poison_dead(true);
  if (half) {
    job.mutable_model()->set_precision("half");
    job.mutable_training()->set_stochastic_rounding(true);
    job.mutable_training()->set_loss_scaling(0);
  }
  return job;
}

Outcome run_with(const proto::RunConfig& job, const std::string& frozen, const Mapping& mapping, Schedule schedule) {
  CompileOptions options = *compile_options(job, dataset());
  options.forward = five_layers;
  options.frozen = frozen;
  if (!mapping.layers.empty()) {
    options.ipus_per_replica = 1 + *std::ranges::max_element(mapping.ipu_of_stage);
    options.pipeline = {.layers_per_ipu = mapping.layers, .device_mapping = mapping.ipu_of_stage, .schedule = schedule};
  }
  auto program = compile(options);
  EXPECT_TRUE(program) << program.error().message;
  return run_program(job, std::move(program).value());
}

void expect_the_bits_of_the_plain_job(bool half, const std::string& frozen) {
  const proto::RunConfig job = job_of(half);
  const Outcome plain = run_with(job, frozen, {}, Schedule::kGrouped);
  ASSERT_FALSE(plain.records[0].tensors.empty());
  for (const Mapping& mapping : mappings()) {
    for (const Schedule schedule : {Schedule::kGrouped, Schedule::kInterleaved, Schedule::kSequential}) {
      SCOPED_TRACE(mapping.name + ", " + name_of(schedule));
      const Outcome staged = run_with(job, frozen, mapping, schedule);
      EXPECT_EQ(staged.records[0].tensors, plain.records[0].tensors);
      ASSERT_EQ(staged.records[0].steps.size(), plain.records[0].steps.size());
      for (std::size_t step = 0; step < plain.records[0].steps.size(); ++step) {
        EXPECT_EQ(staged.records[0].steps[step].loss, plain.records[0].steps[step].loss);
      }
    }
  }
}

TEST(StageMapping, ChangesNoBit) {
  expect_the_bits_of_the_plain_job(/*half=*/false, "");
}

TEST(StageMapping, ChangesNoBitInHalfWithStochasticRounding) {
  expect_the_bits_of_the_plain_job(/*half=*/true, "");
}

TEST(StageMapping, ChangesNoBitWhereTheFirstStagesAreFrozen) {
  expect_the_bits_of_the_plain_job(/*half=*/false, "^fc[12]");
}

TEST(StageMapping, ChangesNoBitWhereOnlyTheHeadLearns) {
  expect_the_bits_of_the_plain_job(/*half=*/false, "^fc");
}

TEST(StageMapping, LeavesOutTheBackwardPartsOfFrozenFirstStages) {
  CompileOptions options = *compile_options(job_of(false), dataset());
  options.forward = five_layers;
  options.frozen = "^fc[12]";
  options.ipus_per_replica = 4;
  options.pipeline = {.layers_per_ipu = {1, 1, 1, 1, 1}, .device_mapping = {0, 1, 2, 3, 0}};
  const auto program = compile(options);
  ASSERT_TRUE(program) << program.error().message;
  const auto learns = [&program](const char* name) { return find_function(*program, name) != nullptr; };
  EXPECT_FALSE(learns("backward.0"));
  EXPECT_FALSE(learns("backward.1"));
  EXPECT_TRUE(learns("backward.2"));
  EXPECT_TRUE(learns("backward.4"));
}

}  // namespace
}  // namespace poprun::stage_mapping_test
