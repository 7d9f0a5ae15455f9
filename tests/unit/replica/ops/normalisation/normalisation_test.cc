/// Softmax, its logarithm and layer normalisation: forward against the definition in double, gradients against central
/// differences.

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun {
namespace {

using testing::f32;
using testing::GraphRunner;
using testing::Probe;

class Softmax : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(Softmax, ForwardAgreesWithTheDefinition) {
  const std::int64_t K = GetParam();
  for (const std::string kind : {"softmax", "log_softmax"}) {
    Probe probe(kind, {f32({2, 3, K})}, {}, 1);
    GraphRunner runner(probe.graph());
    probe.randomise(runner, 4.0F, 51);
    runner.run(probe.operation());
    const float* x = runner.floats(probe.operation().inputs[0]).data();
    const float* y = runner.floats(probe.operation().outputs[0]).data();
    for (std::int64_t row = 0; row < 6; ++row) {
      double sum = 0;
      for (std::int64_t k = 0; k < K; ++k) {
        sum += std::exp(static_cast<double>(x[row * K + k]));
      }
      for (std::int64_t k = 0; k < K; ++k) {
        const double logarithm = static_cast<double>(x[row * K + k]) - std::log(sum);
        EXPECT_NEAR(y[row * K + k], kind == "softmax" ? std::exp(logarithm) : logarithm, 1e-5);
      }
    }
  }
}

TEST_P(Softmax, GradientAgreesWithDifferences) {
  for (const std::string kind : {"softmax", "log_softmax"}) {
    Probe probe(kind, {f32({2, GetParam()})}, {}, 1);
    GraphRunner runner(probe.graph());
    probe.randomise(runner, 2.0F, 52);
    probe.expect_gradients(runner, 0.01F, 3e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Softmax, ::testing::Values(2, 5, 16, 37));

TEST(Softmax, ItsLogarithmKeepsTheDigitsOfProbabilitiesNearOne) {
  Probe probe("log_softmax", {f32({1, 3})}, {}, 1);
  GraphRunner runner(probe.graph());
  std::ranges::copy(std::vector{7.0F, 0.0F, -1.0F}, runner.floats(probe.operation().inputs[0]).begin());
  runner.run(probe.operation());
  const double expected = -std::log1p(std::exp(-7.0) + std::exp(-8.0));
  EXPECT_NEAR(runner.floats(probe.operation().outputs[0])[0], expected, -1e-6 * expected);
}

TEST(Softmax, GivesMaskedEntriesNothing) {
  Probe probe("softmax", {f32({1, 4})}, {}, 1);
  GraphRunner runner(probe.graph());
  const float masked = std::numeric_limits<float>::lowest();
  std::ranges::copy(std::vector{1.0F, masked, 1.0F, masked}, runner.floats(probe.operation().inputs[0]).begin());
  runner.run(probe.operation());
  EXPECT_THAT(runner.floats(probe.operation().outputs[0]), ::testing::ElementsAre(0.5F, 0.0F, 0.5F, 0.0F));
}

class LayerNorm : public ::testing::TestWithParam<Shape> {};

TEST_P(LayerNorm, ForwardAgreesWithTheDefinition) {
  const Shape& shape = GetParam();
  const std::int64_t C = shape.back();
  Probe probe("layer_norm", {f32(shape), f32({C}), f32({C})}, {{"epsilon", 1e-3}}, 3);
  GraphRunner runner(probe.graph());
  probe.randomise(runner, 1.0F, 53);
  runner.run(probe.operation());
  const auto in = [&](std::size_t i) { return runner.floats(probe.operation().inputs[i]).data(); };
  const float* y = runner.floats(probe.operation().outputs[0]).data();
  const std::int64_t rows = f32(shape).elements() / C;
  for (std::int64_t b = 0; b < rows; ++b) {
    const float* x = in(0) + b * C;
    double mean = 0;
    double variance = 0;
    for (std::int64_t c = 0; c < C; ++c) {
      mean += static_cast<double>(x[c]) / static_cast<double>(C);
    }
    for (std::int64_t c = 0; c < C; ++c) {
      variance += std::pow(static_cast<double>(x[c]) - mean, 2) / static_cast<double>(C);
    }
    for (std::int64_t c = 0; c < C; ++c) {
      const double normal = (static_cast<double>(x[c]) - mean) / std::sqrt(variance + 1e-3);
      EXPECT_NEAR(y[b * C + c], normal * static_cast<double>(in(1)[c]) + static_cast<double>(in(2)[c]), 1e-5);
    }
  }
}

TEST_P(LayerNorm, GradientAgreesWithDifferences) {
  const std::int64_t C = GetParam().back();
  Probe probe("layer_norm", {f32(GetParam()), f32({C}), f32({C})}, {{"epsilon", 1e-3}}, 3);
  GraphRunner runner(probe.graph());
  probe.randomise(runner, 1.0F, 54);
  probe.expect_gradients(runner, 0.01F, 5e-3);
}

INSTANTIATE_TEST_SUITE_P(Shapes, LayerNorm, ::testing::Values(Shape{3, 5}, Shape{2, 3, 16}, Shape{4, 37}));

}  // namespace
}  // namespace poprun
