/// Convolutions: forward against the definition, gradients against central differences.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun::conv2d_test {
namespace {

using testing::f32;
using testing::GraphRunner;
using testing::image;
using testing::Probe;

struct ConvCase {
  Shape x, w;
  Shape stride = {1, 1};
  Shape pad = {0, 0, 0, 0};
  Shape dilation = {1, 1};
  std::int64_t groups = 1;
  bool bias = true;
};

/// The parameter is the geometry.
class Conv2d : public ::testing::TestWithParam<ConvCase> {
 protected:
  static Probe probe(const ConvCase& c) {
    std::vector<TensorType> inputs = {image(c.x), f32(c.w)};
    if (c.bias) {
      inputs.push_back(f32({c.w[0]}));
    }
    return {
        "conv2d", inputs, {{"stride", c.stride}, {"pad", c.pad}, {"dilation", c.dilation}, {"groups", c.groups}}, 1};
  }
};

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Computes y[n, o, i, j] as the sum that defines it.
double naive_output(const ConvCase& c, std::span<const float> x, std::span<const float> w, std::int64_t n,
                    std::int64_t o, std::int64_t i, std::int64_t j) {
  const std::int64_t first = o / (c.w[0] / c.groups) * c.w[1];
  double sum = 0;
  for (std::int64_t k = 0; k < c.w[1] * c.w[2] * c.w[3]; ++k) {
    const std::int64_t channel = k / (c.w[2] * c.w[3]);
    const std::int64_t h = i * c.stride[0] + k / c.w[3] % c.w[2] * c.dilation[0] - c.pad[0];
    const std::int64_t v = j * c.stride[1] + k % c.w[3] * c.dilation[1] - c.pad[1];
    if (h >= 0 && h < c.x[2] && v >= 0 && v < c.x[3]) {
      const std::int64_t pixel = (n * c.x[2] + h) * c.x[3] + v;
      sum += static_cast<double>(x[at(pixel * c.x[1] + first + channel)]) *
             static_cast<double>(w[at(o * c.w[1] * c.w[2] * c.w[3] + k)]);
    }
  }
  return sum;
}

// A convolution is linear in each input, so central differences are exact up to rounding.
TEST_P(Conv2d, GradientAgreesWithDifferences) {
  Probe conv = probe(GetParam());
  GraphRunner runner(conv.graph());
  conv.randomise(runner, 1.0F, 7);
  conv.expect_gradients(runner, 0.5F, 1e-4);
}

TEST_P(Conv2d, ForwardAgreesWithTheDefinition) {
  const ConvCase& c = GetParam();
  Probe conv = probe(c);
  GraphRunner runner(conv.graph());
  conv.randomise(runner, 1.0F, 8);
  const std::vector<TensorId>& inputs = conv.operation().inputs;
  runner.run(conv.operation());
  const auto y = runner.floats(conv.operation().outputs[0]);
  const Shape& out = conv.type(conv.operation().outputs[0]).shape;
  for (std::int64_t k = 0; k < static_cast<std::int64_t>(y.size()); ++k) {
    const std::int64_t o = k % out[1];
    const std::int64_t j = k / out[1] % out[3];
    const std::int64_t i = k / out[1] / out[3] % out[2];
    const std::int64_t n = k / out[1] / out[3] / out[2];
    const double bias = c.bias ? static_cast<double>(runner.floats(inputs[2])[at(o)]) : 0.0;
    EXPECT_NEAR(y[at(k)], bias + naive_output(c, runner.floats(inputs[0]), runner.floats(inputs[1]), n, o, i, j), 1e-4);
  }
}

/// Returns a transposed convolution of the same geometry, from its own x [N,O,Y,X] to [N,C,H,W].
Probe transposed(const ConvCase& c) {
  const Attributes attributes{{"stride", c.stride}, {"pad", c.pad}, {"dilation", c.dilation}, {"groups", c.groups}};
  const auto y = find_operator("conv2d")->shape({{image(c.x), f32(c.w)}, {}, attributes});
  Attributes with_shape = attributes;
  with_shape.set("input_shape", c.x);
  return {"conv2d_input_gradient", {y.value()[0], f32(c.w)}, with_shape, 1};
}

TEST_P(Conv2d, TransposedSpreadsEachPixelOverItsTaps) {
  const ConvCase& c = GetParam();
  Probe conv = transposed(c);
  GraphRunner runner(conv.graph());
  conv.randomise(runner, 1.0F, 9);
  runner.run(conv.operation());
  const Shape& in = conv.type(conv.operation().inputs[0]).shape;
  const auto x = runner.floats(conv.operation().inputs[0]);
  const auto w = runner.floats(conv.operation().inputs[1]);
  const auto y = runner.floats(conv.operation().outputs[0]);
  std::vector<double> expected(y.size());
  for (std::int64_t k = 0; k < static_cast<std::int64_t>(x.size()); ++k) {
    const std::int64_t o = k % in[1];
    const std::int64_t first = o / (c.w[0] / c.groups) * c.w[1];
    for (std::int64_t tap = 0; tap < c.w[1] * c.w[2] * c.w[3]; ++tap) {
      const std::int64_t h = k / in[1] / in[3] % in[2] * c.stride[0] + tap / c.w[3] % c.w[2] * c.dilation[0] - c.pad[0];
      const std::int64_t v = k / in[1] % in[3] * c.stride[1] + tap % c.w[3] * c.dilation[1] - c.pad[1];
      if (h >= 0 && h < c.x[2] && v >= 0 && v < c.x[3]) {
        const std::int64_t pixel = (k / in[1] / in[3] / in[2] * c.x[2] + h) * c.x[3] + v;
        expected[at(pixel * c.x[1] + first + tap / (c.w[2] * c.w[3]))] +=
            static_cast<double>(x[at(k)]) * static_cast<double>(w[at(o * c.w[1] * c.w[2] * c.w[3] + tap)]);
      }
    }
  }
  for (std::size_t k = 0; k < y.size(); ++k) {
    EXPECT_NEAR(y[k], expected[k], 1e-4);
  }
}

TEST_P(Conv2d, TransposedGradientAgreesWithDifferences) {
  Probe conv = transposed(GetParam());
  GraphRunner runner(conv.graph());
  conv.randomise(runner, 1.0F, 10);
  conv.expect_gradients(runner, 0.5F, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Conv2d,
    ::testing::Values(
        ConvCase{.x = {2, 1, 5, 5}, .w = {4, 1, 3, 3}, .pad = {1, 1, 1, 1}},
        ConvCase{.x = {1, 3, 6, 4}, .w = {5, 3, 3, 2}, .pad = {0, 1, 0, 1}},
        ConvCase{.x = {2, 2, 7, 7}, .w = {3, 2, 3, 3}, .stride = {2, 2}, .pad = {1, 0, 1, 0}},
        ConvCase{.x = {2, 16, 4, 4}, .w = {16, 16, 1, 1}},
        ConvCase{.x = {1, 2, 5, 6}, .w = {3, 2, 2, 3}, .pad = {0, 2, 1, 1}, .bias = false},
        ConvCase{.x = {1, 3, 9, 8}, .w = {4, 3, 3, 3}, .pad = {2, 0, 1, 3}, .dilation = {2, 3}},
        ConvCase{.x = {2, 8, 5, 5},
                 .w = {12, 2, 3, 3},
                 .stride = {2, 1},
                 .pad = {1, 1, 1, 1},
                 .groups = 4,
                 .bias = false},
        ConvCase{.x = {1, 6, 5, 5}, .w = {6, 1, 3, 3}, .pad = {1, 1, 1, 1}, .groups = 6},
        ConvCase{
            .x = {1, 16, 6, 6}, .w = {16, 1, 3, 3}, .stride = {2, 2}, .pad = {1, 1, 1, 1}, .groups = 16, .bias = false},
        ConvCase{.x = {1, 2, 5, 5}, .w = {6, 1, 3, 3}, .dilation = {2, 2}, .groups = 2},
        ConvCase{.x = {2, 3, 1, 11}, .w = {4, 3, 1, 3}, .stride = {1, 2}, .pad = {0, 2, 0, 0}},
        ConvCase{.x = {1, 2, 2, 2}, .w = {2, 2, 1, 1}, .stride = {2, 2}, .pad = {1, 1, 1, 1}}));

/// Returns the result of shape inference for x [1,4,5,5] and w [6,2,3,3] with one attribute changed.
Result<std::vector<TensorType>> shape_with(const std::string& name, Attribute value) {
  Attributes attributes = {
      {"stride", Shape{1, 1}}, {"pad", Shape{0, 0, 0, 0}}, {"dilation", Shape{1, 1}}, {"groups", std::int64_t{2}}};
  attributes.set(name, std::move(value));
  return find_operator("conv2d")->shape({{image({1, 4, 5, 5}), f32({6, 2, 3, 3})}, {}, attributes});
}

TEST(Conv2dGradient, SumsABiasOverMillionsOfPixels) {
  // A sequential float32 sum of so many terms loses half of its digits.
  constexpr std::int64_t kSide = 1500;
  Graph graph;
  const TensorId x = graph.add_tensor({"x", image({2, 1, kSide, kSide}), Role::kActivation});
  const TensorId dy = graph.add_tensor({"dy", image({2, 2, kSide, kSide}), Role::kActivation});
  const TensorId dw = graph.add_tensor({"dw", f32({2, 1, 1, 1}), Role::kActivation});
  const TensorId db = graph.add_tensor({"db", f32({2}), Role::kActivation});
  GraphRunner runner(graph);
  double expected = 0;
  for (std::int64_t i = 0; i < 2 * kSide * kSide; ++i) {
    const float value = 0.1F + 1e-3F * static_cast<float>(i % 7);
    runner.floats(dy)[at(2 * i)] = value;
    runner.floats(dy)[at(2 * i + 1)] = -value;
    expected += static_cast<double>(value);
  }
  runner.run({"conv2d_weight_gradient",
              {x, dy},
              {dw, db},
              {{"stride", Shape{1, 1}},
               {"pad", Shape{0, 0, 0, 0}},
               {"dilation", Shape{1, 1}},
               {"groups", std::int64_t{1}},
               {"kernel", Shape{1, 1}},
               {"bias", std::int64_t{1}}}});
  EXPECT_NEAR(static_cast<double>(runner.floats(db)[0]) / expected, 1, 1e-6);
  EXPECT_NEAR(static_cast<double>(runner.floats(db)[1]) / expected, -1, 1e-6);
}

TEST(Conv2dShape, RefusesWhatDoesNotFit) {
  EXPECT_TRUE(shape_with("groups", std::int64_t{2}));
  EXPECT_FALSE(shape_with("groups", std::int64_t{1})) << "the weights are of two groups";
  EXPECT_FALSE(shape_with("groups", std::int64_t{0}));
  EXPECT_FALSE(shape_with("pad", Shape{1, 1})) << "one pair says nothing of the other sides";
  EXPECT_FALSE(shape_with("pad", Shape{0, 0, 0, -1}));
  EXPECT_FALSE(shape_with("stride", Shape{0, 1}));
  EXPECT_FALSE(shape_with("dilation", Shape{3, 1})) << "seven rows of five";
  EXPECT_TRUE(shape_with("dilation", Shape{2, 2}));
}

}  // namespace
}  // namespace poprun::conv2d_test
