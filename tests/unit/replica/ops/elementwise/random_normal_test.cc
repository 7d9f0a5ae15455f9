#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun::testing {
namespace {

constexpr std::int64_t kDrawn = 40'003;

std::vector<float> draw_normal(const std::string& key, const Moment& moment) {
  Graph graph;
  const TensorId y = graph.add_tensor({"y", f32({kDrawn}), Role::kActivation});
  GraphRunner runner(graph);
  runner.moment = moment;
  runner.run({"random_normal", {}, {y}, {{"shape", Shape{kDrawn}}, {"key", key}}});
  return {runner.floats(y).begin(), runner.floats(y).end()};
}

/// Returns the mean of the product of powers of neighbours.
double mean_of(const std::vector<float>& y, double power, double of_next = 0) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < y.size(); ++i) {
    sum += std::pow(static_cast<double>(y[i]), power) * std::pow(static_cast<double>(y[i + 1]), of_next);
  }
  return sum / static_cast<double>(y.size() - 1);
}

TEST(RandomNormal, HasTheMomentsOfANormalDistribution) {
  const auto y = draw_normal("a", {.seed = 3});
  // The tolerances are four standard deviations of each mean: 1, 2, 15 and 96 are the variances of x^k.
  const auto tolerance = [](double variance) { return 4 * std::sqrt(variance / kDrawn); };
  EXPECT_NEAR(mean_of(y, 1), 0, tolerance(1));
  EXPECT_NEAR(mean_of(y, 2), 1, tolerance(2));
  EXPECT_NEAR(mean_of(y, 3), 0, tolerance(15));
  EXPECT_NEAR(mean_of(y, 4), 3, tolerance(96));
  EXPECT_NEAR(mean_of(y, 1, 1), 0, tolerance(1));
  EXPECT_NEAR(mean_of(y, 2, 2), 1, tolerance(8));
}

TEST(RandomNormal, IsAFunctionOfKeySeedStepMicroBatchAndReplica) {
  const Moment now{.seed = 1, .step = 5, .micro_batch = 2, .replica = 3};
  const auto y = draw_normal("a", now);
  EXPECT_EQ(y, draw_normal("a", now));
  EXPECT_NE(y, draw_normal("b", now));
  EXPECT_NE(y, draw_normal("a", {.seed = 2, .step = 5, .micro_batch = 2, .replica = 3}));
  EXPECT_NE(y, draw_normal("a", {.seed = 1, .step = 6, .micro_batch = 2, .replica = 3}));
  EXPECT_NE(y, draw_normal("a", {.seed = 1, .step = 5, .micro_batch = 1, .replica = 3}));
  EXPECT_NE(y, draw_normal("a", {.seed = 1, .step = 5, .micro_batch = 2, .replica = 2}));
}

}  // namespace
}  // namespace poprun::testing
