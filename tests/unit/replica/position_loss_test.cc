/// The loss of language models: positions of sequences, many classes.

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_runner.h"
#include "probe.h"

namespace poprun {
namespace {

using testing::f32;
using testing::GraphRunner;
using testing::Probe;

class PositionLoss : public ::testing::TestWithParam<std::int64_t> {
 protected:
  PositionLoss()
      : probe_("softmax_cross_entropy", {f32({2, 3, GetParam()}), {DataType::kI32, {2, 3}, {}}}, {},
               3),
        runner_(probe_.graph()) {
    probe_.randomise(runner_, 20.0F, 61);
    std::memcpy(runner_.bytes(probe_.operation().inputs[1]), labels_.data(), sizeof(labels_));
  }

  /// The sixth label is out of range: like padding, it does not count.
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
