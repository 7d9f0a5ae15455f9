#include <cmath>

#include <gtest/gtest.h>

#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun::testing {
namespace {

constexpr std::int64_t kDropped = 40'003;

/// Returns the result of dropout on ones.
std::vector<float> drop(double rate, const std::string& key, const Moment& moment) {
  Graph graph;
  const TensorId x = graph.add_tensor({"x", f32({kDropped}), Role::kActivation});
  const TensorId y = graph.add_tensor({"y", f32({kDropped}), Role::kActivation});
  GraphRunner runner(graph);
  runner.moment = moment;
  std::ranges::fill(runner.floats(x), 1.0F);
  runner.run({"dropout", {x}, {y}, {{"rate", rate}, {"key", key}}});
  return {runner.floats(y).begin(), runner.floats(y).end()};
}

TEST(Dropout, DropsTheRateAndKeepsTheMean) {
  for (const double rate : {0.1, 0.5}) {
    const auto y = drop(rate, "a", {.seed = 3});
    double dropped = 0;
    for (const float value : y) {
      dropped += value == 0 ? 1 : 0;
      EXPECT_TRUE(value == 0 || value == static_cast<float>(1 / (1 - rate)));
    }
    // The tolerance is four standard deviations of a binomial distribution.
    EXPECT_NEAR(dropped / kDropped, rate, 4 * std::sqrt(rate * (1 - rate) / kDropped));
  }
  const auto all = drop(0, "a", {});
  EXPECT_EQ(std::ranges::count(all, 1.0F), kDropped);
}

TEST(Dropout, KeepsTheMeanAtRatesNearOne) {
  for (const double rate : {0.99, 0.9999, 0.99999, 1 - 0x1p-20}) {
    double sum = 0;
    double kept = 0;
    constexpr int kDraws = 200;
    for (int step = 0; step < kDraws; ++step) {
      for (const float value : drop(rate, "a", {.seed = 3, .step = static_cast<std::uint32_t>(step)})) {
        sum += static_cast<double>(value);
        kept += value == 0 ? 0 : 1;
      }
    }
    const double expected = (1 - rate) * kDropped * kDraws;
    EXPECT_NEAR(kept, expected, 4 * std::sqrt(expected)) << rate;
    EXPECT_NEAR(sum * (1 - rate), kept, 1e-4 * kept) << "of the kept elements, at rate " << rate;
  }
}

TEST(Dropout, IsAFunctionOfKeySeedStepMicroBatchAndReplica) {
  const Moment now{.seed = 1, .step = 5, .micro_batch = 2, .replica = 3};
  const auto y = drop(0.5, "a", now);
  EXPECT_EQ(y, drop(0.5, "a", now));
  EXPECT_NE(y, drop(0.5, "b", now));
  EXPECT_NE(y, drop(0.5, "a", {.seed = 2, .step = 5, .micro_batch = 2, .replica = 3}));
  EXPECT_NE(y, drop(0.5, "a", {.seed = 1, .step = 6, .micro_batch = 2, .replica = 3}));
  EXPECT_NE(y, drop(0.5, "a", {.seed = 1, .step = 5, .micro_batch = 1, .replica = 3}));
  EXPECT_NE(y, drop(0.5, "a", {.seed = 1, .step = 5, .micro_batch = 2, .replica = 2}));
}

TEST(Dropout, ItsGradientDropsTheSameElements) {
  Probe probe("dropout", {f32({6, 11})}, {{"rate", 0.4}, {"key", std::string{"a"}}}, 1);
  GraphRunner runner(probe.graph());
  probe.randomise(runner, 1, 7);
  probe.expect_gradients(runner, 0.125F, 1e-5);
}

}  // namespace
}  // namespace poprun::testing
