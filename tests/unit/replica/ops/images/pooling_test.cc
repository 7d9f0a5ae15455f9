/// Pooling: forward against the definition, gradients against central differences.

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun::pooling_test {
namespace {

using testing::distinct;
using testing::GraphRunner;
using testing::image;
using testing::Probe;

struct PoolCase {
  Shape x = {};
  Shape window = {};
  Shape stride = {};
  Shape pad = {0, 0, 0, 0};
  bool ceil = false;
  bool count_pad = false;
  Shape y = {};  ///< Height and width, by PyTorch's rule.
};

Attributes attributes_of(const PoolCase& c) {
  return {{"window", c.window},
          {"stride", c.stride},
          {"pad", c.pad},
          {"ceil", std::int64_t{c.ceil}},
          {"count_pad", std::int64_t{c.count_pad}}};
}

/// Returns the maximum and mean of the window of output pixel (i, j) in channel ch of image n.
std::pair<double, double> naive(const PoolCase& c, std::span<const float> x, std::int64_t n, std::int64_t ch,
                                std::int64_t i, std::int64_t j) {
  double largest = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double count = 0;
  for (std::int64_t k = 0; k < c.window[0] * c.window[1]; ++k) {
    const std::int64_t h = i * c.stride[0] - c.pad[0] + k / c.window[1];
    const std::int64_t w = j * c.stride[1] - c.pad[1] + k % c.window[1];
    const bool inside = h >= 0 && h < c.x[2] && w >= 0 && w < c.x[3];
    const bool in_padding = h < c.x[2] + c.pad[2] && w < c.x[3] + c.pad[3];
    if (inside) {
      const auto at = static_cast<std::size_t>(((n * c.x[2] + h) * c.x[3] + w) * c.x[1] + ch);
      largest = std::max(largest, static_cast<double>(x[at]));
      sum += static_cast<double>(x[at]);
    }
    count += inside || (c.count_pad && in_padding) ? 1 : 0;
  }
  return {largest, sum / count};
}

/// The parameter is the geometry.
class Pooling : public ::testing::TestWithParam<PoolCase> {
 protected:
  static void expect_forward(const std::string& kind) {
    const PoolCase& c = GetParam();
    Probe probe(kind, {image(c.x)}, attributes_of(c), 1);
    GraphRunner runner(probe.graph());
    probe.randomise(runner, 1.0F, 4);
    runner.run(probe.operation());
    const Shape& out = probe.type(probe.operation().outputs[0]).shape;
    ASSERT_EQ(out, (Shape{c.x[0], c.x[1], c.y[0], c.y[1]}));
    const auto x = runner.floats(probe.operation().inputs[0]);
    const auto y = runner.floats(probe.operation().outputs[0]);
    for (std::int64_t k = 0; k < static_cast<std::int64_t>(y.size()); ++k) {
      const std::int64_t pixel = k / out[1];
      const auto [largest, mean] =
          naive(c, x, pixel / (out[2] * out[3]), k % out[1], pixel / out[3] % out[2], pixel % out[3]);
      EXPECT_NEAR(y[static_cast<std::size_t>(k)], kind == "maxpool2d" ? largest : mean, 1e-6);
    }
  }

  static void expect_gradient(const std::string& kind, float h, double tolerance) {
    Probe probe(kind, {image(GetParam().x)}, attributes_of(GetParam()), 1);
    GraphRunner runner(probe.graph());
    probe.randomise(runner, 1.0F, 9);
    distinct(runner.floats(probe.operation().inputs[0]), 0.1F, 9);
    probe.expect_gradients(runner, h, tolerance);
  }
};

TEST_P(Pooling, MaximumAgreesWithTheDefinition) {
  expect_forward("maxpool2d");
}
TEST_P(Pooling, MeanAgreesWithTheDefinition) {
  expect_forward("avgpool2d");
}
TEST_P(Pooling, GradientOfTheMaximumAgreesWithDifferences) {
  expect_gradient("maxpool2d", 0.01F, 1e-3);
}
TEST_P(Pooling, GradientOfTheMeanAgreesWithDifferences) {
  expect_gradient("avgpool2d", 0.5F, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Pooling,
    ::testing::Values(
        PoolCase{.x = {2, 3, 4, 4}, .window = {2, 2}, .stride = {2, 2}, .y = {2, 2}},
        PoolCase{.x = {1, 2, 5, 7}, .window = {3, 3}, .stride = {2, 2}, .y = {2, 3}},
        PoolCase{.x = {1, 20, 5, 5}, .window = {2, 3}, .stride = {1, 2}, .y = {4, 2}},
        PoolCase{.x = {2, 2, 7, 6}, .window = {3, 3}, .stride = {2, 2}, .pad = {1, 1, 1, 1}, .y = {4, 3}},
        PoolCase{
            .x = {1, 2, 6, 6}, .window = {3, 3}, .stride = {2, 2}, .pad = {1, 1, 1, 1}, .count_pad = true, .y = {3, 3}},
        PoolCase{
            .x = {1, 2, 5, 6}, .window = {2, 3}, .stride = {2, 2}, .pad = {0, 2, 1, 0}, .count_pad = true, .y = {3, 3}},
        PoolCase{.x = {1, 2, 6, 6}, .window = {3, 3}, .stride = {2, 2}, .ceil = true, .y = {3, 3}},
        PoolCase{.x = {1, 2, 6, 5},
                 .window = {3, 2},
                 .stride = {2, 3},
                 .pad = {1, 0, 1, 1},
                 .ceil = true,
                 .count_pad = true,
                 .y = {4, 2}},
        // The fourth row of windows would begin after the image.
        PoolCase{.x = {1, 1, 5, 5}, .window = {2, 2}, .stride = {3, 3}, .pad = {1, 1, 1, 1}, .ceil = true, .y = {2, 2}},
        PoolCase{.x = {2, 5, 3, 4}, .window = {3, 4}, .stride = {1, 1}, .y = {1, 1}}));

TEST(Maxpool2d, GivesTheGradientOfATieToTheFirstOnly) {
  Probe probe("maxpool2d", {image({1, 1, 2, 2})}, attributes_of({.window = {2, 2}, .stride = {2, 2}}), 1);
  GraphRunner runner(probe.graph());
  std::ranges::copy(std::vector{1.0F, 4.0F, 4.0F, 4.0F}, runner.floats(probe.operation().inputs[0]).begin());
  runner.floats(probe.dy())[0] = 3.0F;
  Graph graph = probe.graph();

  runner.run(graph.functions[1].regions[0].operations);

  EXPECT_THAT(runner.floats(graph.find("g0")), ::testing::ElementsAre(0.0F, 3.0F, 0.0F, 0.0F));
}

// The taps are 2 rows and 3 columns apart, and start one pixel outside the image.
TEST(Maxpool2d, PutsTheTapsOfADilatedWindowApart) {
  PoolCase c{.x = {1, 2, 5, 6}, .window = {2, 2}, .stride = {1, 2}, .pad = {1, 1, 1, 0}};
  Attributes attributes = attributes_of(c);
  attributes.set("dilation", Shape{2, 3});
  Probe probe("maxpool2d", {image(c.x)}, attributes, 1);
  GraphRunner runner(probe.graph());
  probe.randomise(runner, 1.0F, 14);
  const auto x = runner.floats(probe.operation().inputs[0]);
  distinct(x, 0.1F, 14);
  runner.run(probe.operation());
  ASSERT_EQ(probe.type(probe.operation().outputs[0]).shape, (Shape{1, 2, 5, 2}));
  for (std::int64_t k = 0; k < 20; ++k) {
    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t tap = 0; tap < 4; ++tap) {
      const std::int64_t h = k / 4 - 1 + tap / 2 * 2;
      const std::int64_t w = k / 2 % 2 * 2 - 1 + tap % 2 * 3;
      if (h >= 0 && h < 5 && w >= 0 && w < 6) {
        largest = std::max(largest, x[static_cast<std::size_t>((h * 6 + w) * 2 + k % 2)]);
      }
    }
    EXPECT_EQ(runner.floats(probe.operation().outputs[0])[static_cast<std::size_t>(k)], largest);
  }
  probe.expect_gradients(runner, 0.01F, 1e-3);
}

// A window has two taps, four apart, over three pixels. Its second position covers no pixel.
TEST(Maxpool2d, OfAWindowWithoutPixelsIsMinusInfinity) {
  Attributes attributes = attributes_of({.window = {1, 2}, .stride = {1, 1}, .pad = {0, 2, 0, 1}});
  attributes.set("dilation", Shape{1, 4});
  Probe probe("maxpool2d", {image({1, 1, 1, 3})}, attributes, 1);
  GraphRunner runner(probe.graph());
  std::ranges::copy(std::vector{1.0F, 2.0F, 3.0F}, runner.floats(probe.operation().inputs[0]).begin());
  runner.run(probe.operation());
  EXPECT_THAT(runner.floats(probe.operation().outputs[0]),
              ::testing::ElementsAre(3.0F, -std::numeric_limits<float>::infinity()));
}

TEST(Maxpool2d, KeepsNaN) {
  Probe probe("maxpool2d", {image({1, 1, 1, 3})}, attributes_of({.window = {1, 3}, .stride = {1, 1}}), 1);
  GraphRunner runner(probe.graph());
  std::ranges::copy(std::vector{1.0F, std::nanf(""), 2.0F}, runner.floats(probe.operation().inputs[0]).begin());

  runner.run(probe.operation());

  EXPECT_TRUE(std::isnan(runner.floats(probe.operation().outputs[0])[0]));
}

TEST(PoolingShape, RefusesAWindowThatCouldLieInThePadding) {
  const auto shape = [](const Shape& window, const Shape& pad) {
    return find_operator("avgpool2d")
        ->shape({{image({1, 2, 4, 4})}, {}, attributes_of({.window = window, .stride = {1, 1}, .pad = pad})});
  };

  EXPECT_TRUE(shape({2, 2}, {1, 1, 1, 1}));
  EXPECT_FALSE(shape({2, 2}, {2, 0, 0, 0}));
  EXPECT_FALSE(shape({2, 2}, {0, 0, 0, 2}));
  EXPECT_FALSE(shape({5, 5}, {0, 0, 0, 0}));
}

TEST(AveragePooling, OfAWholeImageDoesNotDrift) {
  Graph graph;
  const TensorId x = graph.add_tensor({"x", image({1, 2, 512, 512}), Role::kActivation});
  const TensorId y = graph.add_tensor({"y", image({1, 2, 1, 1}), Role::kActivation});
  GraphRunner runner(graph);
  std::ranges::fill(runner.floats(x), 0.7F);
  runner.run({"avgpool2d", {x}, {y}, attributes_of({.window = {512, 512}, .stride = {1, 1}})});
  EXPECT_EQ(runner.floats(y)[0], 0.7F);
  EXPECT_EQ(runner.floats(y)[1], 0.7F);
}

}  // namespace
}  // namespace poprun::pooling_test
