#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun::testing::random_test {
namespace {

constexpr std::int64_t kDrawn = 100'003;

std::vector<float> draw(const std::string& kind, const std::string& key, const Moment& moment) {
  Graph graph;
  const TensorId y = graph.add_tensor({"y", f32({kDrawn}), Role::kActivation});
  GraphRunner runner(graph);
  runner.moment = moment;
  runner.run({kind, {}, {y}, {{"shape", Shape{kDrawn}}, {"key", key}}});
  return {runner.floats(y).begin(), runner.floats(y).end()};
}

/// Returns the mean of the numbers' k-th powers.
double moment_of(const std::vector<float>& y, int k) {
  double sum = 0;
  for (const float value : y) {
    sum += std::pow(static_cast<double>(value), k);
  }
  return sum / static_cast<double>(y.size());
}

// The tolerances are four standard deviations.
TEST(Random, UniformNumbersHaveTheMomentsOfTheirDistribution) {
  const auto y = draw("random_uniform", "a", {.seed = 3});
  EXPECT_GE(*std::ranges::min_element(y), 0.0F);
  EXPECT_LT(*std::ranges::max_element(y), 1.0F);
  EXPECT_NEAR(moment_of(y, 1), 1.0 / 2, 4 * std::sqrt(1.0 / 12 / kDrawn));
  EXPECT_NEAR(moment_of(y, 2), 1.0 / 3, 4 * std::sqrt(4.0 / 45 / kDrawn));
}

TEST(Random, NormalNumbersHaveTheMomentsOfTheirDistribution) {
  const auto y = draw("random_normal", "a", {.seed = 3});
  EXPECT_NEAR(moment_of(y, 1), 0, 4 * std::sqrt(1.0 / kDrawn));
  EXPECT_NEAR(moment_of(y, 2), 1, 4 * std::sqrt(2.0 / kDrawn));
  EXPECT_NEAR(moment_of(y, 3), 0, 4 * std::sqrt(15.0 / kDrawn));
  EXPECT_NEAR(moment_of(y, 4), 3, 4 * std::sqrt(96.0 / kDrawn));
  double of_neighbours = 0;
  for (std::size_t i = 0; i + 1 < y.size(); ++i) {
    of_neighbours += static_cast<double>(y[i]) * static_cast<double>(y[i + 1]);
  }
  EXPECT_NEAR(of_neighbours / kDrawn, 0, 4 * std::sqrt(1.0 / kDrawn));
}

TEST(Random, IsAFunctionOfKeySeedStepMicroBatchAndReplica) {
  const Moment now{.seed = 1, .step = 5, .micro_batch = 2, .replica = 3};
  for (const char* kind : {"random_uniform", "random_normal"}) {
    const auto y = draw(kind, "a", now);
    EXPECT_EQ(y, draw(kind, "a", now));
    EXPECT_NE(y, draw(kind, "b", now));
    EXPECT_NE(y, draw(kind, "a", {.seed = 2, .step = 5, .micro_batch = 2, .replica = 3}));
    EXPECT_NE(y, draw(kind, "a", {.seed = 1, .step = 6, .micro_batch = 2, .replica = 3}));
    EXPECT_NE(y, draw(kind, "a", {.seed = 1, .step = 5, .micro_batch = 1, .replica = 3}));
    EXPECT_NE(y, draw(kind, "a", {.seed = 1, .step = 5, .micro_batch = 2, .replica = 2}));
  }
}

TEST(RoundThrough, RoundsTiesToEvenAndPassesTheGradientUnchanged) {
  Probe probe("round_through", {f32({4})}, {}, 1);
  GraphRunner runner(probe.graph());
  std::ranges::copy(std::vector<float>{0.5F, 1.5F, -0.4F, -2.6F}, runner.floats(probe.operation().inputs[0]).begin());
  probe.randomise_output_gradients(runner, 3);
  probe.run(runner);
  EXPECT_EQ(std::vector<float>(runner.floats(probe.operation().outputs[0]).begin(),
                               runner.floats(probe.operation().outputs[0]).end()),
            (std::vector<float>{0, 2, 0, -3}));
  const auto dx = runner.floats(*probe.gradient(0));
  EXPECT_TRUE(std::ranges::equal(dx, runner.floats(*probe.dy(0))));
}

}  // namespace
}  // namespace poprun::testing::random_test
