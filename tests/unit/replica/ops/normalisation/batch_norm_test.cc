/// Batch normalisation against its definition in double, and its gradients against differences.

#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun {
namespace {

using testing::f32;
using testing::GraphRunner;
using testing::image;
using testing::Probe;

constexpr double kEps = 0.01;

/// The parameter is x.
class BatchNorm : public ::testing::TestWithParam<TensorType> {
 protected:
  std::int64_t C_ = GetParam().shape[1];
  std::vector<TensorType> training_inputs_ = {GetParam(), f32({C_}), f32({C_})};
  std::vector<TensorType> inference_inputs_ = {GetParam(), f32({C_}), f32({C_}), f32({C_}), f32({C_})};
};

TEST_P(BatchNorm, TrainingNormalisesWithTheStatisticsOfTheBatch) {
  Probe probe("batch_norm_training", training_inputs_, {{"eps", kEps}}, 3);
  GraphRunner runner(probe.graph());
  probe.randomise(runner, 2.0F, 3);
  const std::vector<TensorId> in = probe.operation().inputs;
  const std::vector<TensorId> out = probe.operation().outputs;
  for (float& value : runner.floats(in[0])) {
    value += 5.0F;  // Makes the mean large compared with the deviation.
  }

  runner.run(probe.operation());

  const auto x = runner.floats(in[0]);
  const auto C = static_cast<std::size_t>(C_);
  const auto M = static_cast<double>(x.size() / C);
  for (std::size_t c = 0; c < C; ++c) {
    double mean = 0;
    double variance = 0;
    for (std::size_t i = c; i < x.size(); i += C) {
      mean += static_cast<double>(x[i]) / M;
    }
    for (std::size_t i = c; i < x.size(); i += C) {
      variance += std::pow(static_cast<double>(x[i]) - mean, 2) / M;
    }
    EXPECT_NEAR(runner.floats(out[1])[c], mean, 1e-6);
    EXPECT_NEAR(runner.floats(out[2])[c], variance, 1e-6);
    for (std::size_t i = c; i < x.size(); i += C) {
      const double normal = (static_cast<double>(x[i]) - mean) / std::sqrt(variance + kEps);
      const double w = static_cast<double>(runner.floats(in[1])[c]);
      EXPECT_NEAR(runner.floats(out[0])[i], normal * w + static_cast<double>(runner.floats(in[2])[c]), 1e-5);
    }
  }
}

TEST_P(BatchNorm, TrainingGradientAgreesWithDifferences) {
  Probe probe("batch_norm_training", training_inputs_, {{"eps", kEps}}, 3);
  GraphRunner runner(probe.graph());
  probe.randomise(runner, 2.0F, 5);
  probe.expect_gradients(runner, 0.01F, 2e-3);
}

TEST_P(BatchNorm, InferenceGradientAgreesWithDifferences) {
  Probe probe("batch_norm_inference", inference_inputs_, {{"eps", kEps}}, 1);
  GraphRunner runner(probe.graph());
  probe.randomise(runner, 1.0F, 5);
  for (float& variance : runner.floats(probe.operation().inputs[4])) {
    variance = std::abs(variance) + 0.5F;
  }
  probe.expect_gradients(runner, 0.25F, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Types, BatchNorm,
                         ::testing::Values(image({2, 3, 2, 3}), image({1, 17, 2, 2}), image({2, 1, 3, 3}),
                                           f32({6, 5})));

TEST(BatchNormInference, NormalisesWithTheGivenStatistics) {
  Probe probe("batch_norm_inference", {f32({1, 2}), f32({2}), f32({2}), f32({2}), f32({2})}, {{"eps", 1.0}}, 1);
  GraphRunner runner(probe.graph());
  const std::vector<std::vector<float>> inputs = {{7, 8}, {2, 3}, {10, 20}, {1, 2}, {3, 8}};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::ranges::copy(inputs[i], runner.floats(probe.operation().inputs[i]).begin());
  }

  runner.run(probe.operation());

  // The results are (7 - 1) / sqrt(3 + 1) * 2 + 10 and (8 - 2) / sqrt(8 + 1) * 3 + 20.
  EXPECT_THAT(runner.floats(probe.operation().outputs[0]), ::testing::ElementsAre(16.0F, 26.0F));
}

TEST(BatchNormUpdate, RemembersTheUnbiasedVariance) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}};
  Builder builder(graph, {0, 0}, "");
  std::vector<TensorId> ids;
  for (const char* name : {"running_mean", "running_variance", "mean", "variance"}) {
    ids.push_back(graph.add_tensor({name, f32({1}), Role::kActivation}));
  }
  builder.update("batch_norm_update", ids, {{"momentum", 0.25}, {"elements", std::int64_t{4}}}, {ids[0], ids[1]});
  GraphRunner runner(graph);
  const std::vector<float> values = {8, 16, 4, 3};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    runner.floats(ids[i])[0] = values[i];
  }

  runner.run(builder.operations());

  // 0.75 * 8 + 0.25 * 4, and 0.75 * 16 + 0.25 * 3 * 4/3.
  EXPECT_EQ(runner.floats(ids[0])[0], 7.0F);
  EXPECT_EQ(runner.floats(ids[1])[0], 13.0F);
}

TEST(BatchNormTraining, RefusesOneElementAChannel) {
  const auto types =
      find_operator("batch_norm_training")->shape({{image({1, 8, 1, 1}), f32({8}), f32({8})}, {}, {{"eps", 0.1}}});

  ASSERT_FALSE(types);
  EXPECT_THAT(types.error().message, ::testing::HasSubstr("at least two elements per channel, but f32[1,8,1,1]{nhwc} "
                                                          "has one; use a larger data.micro-batch-size"));
}

/// The example is a grouped convolution with a bias, followed by batch normalisation.
TEST(FoldBatchNorm, GivesTheConvolutionThatTheTwoWere) {
  const std::int64_t N = 2;
  const std::int64_t O = 6;
  Graph graph;
  const auto add = [&graph](const char* name, TensorType type) {
    return graph.add_tensor({name, std::move(type), Role::kActivation});
  };
  const TensorId x = add("x", image({N, 4, 5, 5}));
  const TensorId w = add("w", f32({O, 2, 3, 3}));
  const TensorId bias = add("bias", f32({O}));
  const TensorId scale = add("scale", f32({O}));
  const TensorId shift = add("shift", f32({O}));
  const TensorId mean = add("mean", f32({O}));
  const TensorId variance = add("variance", f32({O}));
  const TensorId y = add("y", image({N, O, 5, 5}));
  const TensorId z = add("z", image({N, O, 5, 5}));
  const TensorId folded = add("folded", image({N, O, 5, 5}));
  GraphRunner runner(graph);
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const TensorId id : {x, w, bias, scale, shift, mean, variance}) {
    for (float& value : runner.floats(id)) {
      value = id == variance ? 1.5F + uniform(random) : uniform(random);
    }
  }
  const Attributes geometry{
      {"stride", Shape{1, 1}}, {"pad", Shape{1, 1, 1, 1}}, {"dilation", Shape{1, 1}}, {"groups", std::int64_t{2}}};
  const Attributes eps{{"eps", kEps}};
  runner.run(
      {{"conv2d", {x, w, bias}, {y}, geometry}, {"batch_norm_inference", {y, scale, shift, mean, variance}, {z}, eps}});

  runner.run({{"fold_batch_norm", {w, shift, scale, mean, variance, bias}, {w, shift}, eps},
              {"conv2d", {x, w, shift}, {folded}, geometry}});

  for (std::size_t i = 0; i < runner.floats(z).size(); ++i) {
    ASSERT_NEAR(runner.floats(folded)[i], runner.floats(z)[i], 1e-5) << i;
  }
}

}  // namespace
}  // namespace poprun
