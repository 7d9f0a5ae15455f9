/// The loss of language models, over positions of sequences and many classes.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun {
namespace {

using testing::f32;
using testing::GraphRunner;
using testing::Probe;

/// Returns a row of metrics as a number.
double number(const float* parts) {
  return static_cast<double>(parts[0]) + static_cast<double>(parts[1]) + static_cast<double>(parts[2]);
}

TEST(Metrics, CountAndSumExactlyOverManyBatches) {
  Graph graph;
  const auto add = [&graph](const char* name, TensorType type) {
    return graph.add_tensor({name, std::move(type), Role::kMetric});
  };
  const TensorId total = add("total", f32({3, 3}));
  const std::vector<TensorId> batch = {add("loss", f32({})), add("correct", f32({})), add("count", f32({}))};
  GraphRunner runner(graph);
  std::ranges::fill(runner.floats(total), 0.0F);
  // 3000 images of 127 x 127 labels are more than a float can count.
  constexpr int kBatches = 3000;
  constexpr double kCount = 127 * 127;
  runner.floats(batch[0])[0] = 0.7F;
  runner.floats(batch[1])[0] = static_cast<float>(kCount) - 1;
  runner.floats(batch[2])[0] = static_cast<float>(kCount);
  for (int i = 0; i < kBatches; ++i) {
    runner.run({"accumulate_metrics", {total, batch[0], batch[1], batch[2]}, {total}, {}});
  }
  const float* rows = runner.floats(total).data();
  EXPECT_EQ(number(rows + 6), 48'387'000);
  EXPECT_EQ(number(rows + 3), 48'384'000);
  const double losses = static_cast<double>(0.7F) * kCount * kBatches;
  EXPECT_NEAR(number(rows), losses, 1e-9 * losses);
  // Floats can also hold the sum over replicas.
  std::array<float, 3> replicas{};
  for (int r = 0; r < 100; ++r) {
    for (std::size_t k = 0; k < 3; ++k) {
      replicas.at(k) += rows[6 + k];
    }
  }
  EXPECT_EQ(number(replicas.data()), 4'838'700'000);
}

TEST(Metrics, StayInfiniteOrNaN) {
  Graph graph;
  const TensorId total = graph.add_tensor({"total", f32({3, 3}), Role::kMetric});
  const TensorId one = graph.add_tensor({"one", f32({}), Role::kMetric});
  const TensorId loss = graph.add_tensor({"loss", f32({}), Role::kMetric});
  GraphRunner runner(graph);
  std::ranges::fill(runner.floats(total), 0.0F);
  runner.floats(one)[0] = 1;
  runner.floats(loss)[0] = std::numeric_limits<float>::infinity();
  runner.run({"accumulate_metrics", {total, loss, one, one}, {total}, {}});
  EXPECT_EQ(number(runner.floats(total).data()), std::numeric_limits<double>::infinity());
  EXPECT_EQ(number(runner.floats(total).data() + 6), 1);
}

class PositionLoss : public ::testing::TestWithParam<std::int64_t> {
 protected:
  PositionLoss()
      : probe_("softmax_cross_entropy", {f32({2, 3, GetParam()}), {DataType::kI32, {2, 3}, {}}}, {}, 3),
        runner_(probe_.graph()) {
    probe_.randomise(runner_, 20.0F, 61);
    std::memcpy(runner_.bytes(probe_.operation().inputs[1]), labels_.data(), sizeof(labels_));
  }

  /// The sixth label is out of range and, like padding, does not count.
  std::array<std::int32_t, 6> labels_ = {0, -1,   static_cast<std::int32_t>(GetParam()) - 1,
                                         1, -100, static_cast<std::int32_t>(GetParam())};
  Probe probe_;
  GraphRunner runner_;
};

TEST_P(PositionLoss, AgreesWithTheDefinition) {
  runner_.run(probe_.operation());
  const float* x = runner_.floats(probe_.operation().inputs[0]).data();
  const std::int64_t K = GetParam();
  double loss = 0;
  for (const std::int64_t row : {0, 2, 3}) {
    double sum = 0;
    for (std::int64_t k = 0; k < K; ++k) {
      sum += std::exp(static_cast<double>(x[row * K + k]));
    }
    const std::int32_t label = labels_.at(static_cast<std::size_t>(row));
    loss += std::log(sum) - static_cast<double>(x[row * K + label]);
  }
  EXPECT_NEAR(runner_.floats(probe_.operation().outputs[0])[0], loss / 3, 1e-5 * loss);
  EXPECT_EQ(runner_.floats(probe_.operation().outputs[2])[0], 3.0F);
}

TEST_P(PositionLoss, GradientIsSoftmaxLessTheLabel) {
  runner_.run(probe_.graph().functions[1].regions[0].operations);
  const float* x = runner_.floats(probe_.operation().inputs[0]).data();
  const float* g = runner_.floats(probe_.graph().find("g0")).data();
  const double dy = static_cast<double>(runner_.floats(probe_.dy())[0]);
  const std::int64_t K = GetParam();
  for (std::int64_t row = 0; row < 6; ++row) {
    const std::int32_t label = labels_.at(static_cast<std::size_t>(row));
    const bool counts = label >= 0 && label < K;
    double sum = 0;
    for (std::int64_t k = 0; k < K; ++k) {
      sum += std::exp(static_cast<double>(x[row * K + k]));
    }
    for (std::int64_t k = 0; k < K; ++k) {
      const double p = std::exp(static_cast<double>(x[row * K + k])) / sum - (k == label ? 1 : 0);
      EXPECT_NEAR(g[row * K + k], counts ? dy * p / 3 : 0.0, 2e-6 * std::abs(dy));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Classes, PositionLoss, ::testing::Values(2, 16, 37, 1000));

}  // namespace
}  // namespace poprun
