/// ONNX's convolution and pooling of sequences [N,C,L]: forward against the definition, gradients against central
/// differences.

#include <algorithm>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/models/onnx/node.h"
#include "tests/unit/replica/composition.h"
#include "tests/unit/replica/onnx_models.h"
#include "tests/unit/replica/probe.h"

namespace poprun {
namespace {

using testing::Composition;
using testing::distinct;
using testing::f32;
using testing::GraphRunner;
using testing::OnnxBuilder;

/// The geometry of one dimension of a convolution or pooling.
struct Window {
  std::int64_t stride = 1;
  std::int64_t pad_begin = 0;
  std::int64_t pad_end = 0;
  std::int64_t dilation = 1;
  bool ceil = false;
  bool count_pad = false;
};

using Integer = std::pair<std::string, std::int64_t>;
using Integers = std::pair<std::string, std::vector<std::int64_t>>;

/// Adds one ONNX node with these attributes; returns its output 0.
TensorId translated(Builder& builder, const std::string& op, const std::vector<TensorId>& inputs,
                    const std::vector<Integers>& lists, const std::vector<Integer>& integers) {
  onnx_import::Scope scope;
  scope.builder = &builder;
  scope.opset = 17;
  scope.read = {"y"};
  ::onnx::NodeProto proto;
  proto.set_op_type(op);
  proto.add_output("y");
  for (const TensorId input : inputs) {
    const std::string& name = builder.graph().tensor(input).name;
    proto.add_input(name);
    scope.values[name] = {.name = name, .constant = nullptr, .tensor = input, .verdict = {}};
  }
  for (const auto& [name, values] : lists) {
    auto& attribute = *proto.add_attribute();
    attribute.set_name(name);
    attribute.set_type(::onnx::AttributeProto::INTS);
    attribute.mutable_ints()->Add(values.begin(), values.end());
  }
  for (const auto& [name, value] : integers) {
    OnnxBuilder::set_integer(proto, name, value);
  }
  onnx_import::Node node(scope, proto);
  const Status status = onnx_import::find_translator(op)->translate(node);
  EXPECT_TRUE(status) << status.error().message;
  return scope.values.at("y").tensor.value();
}

struct ConvCase {
  Shape x, w;
  Window window = {};
  std::int64_t groups = 1;
  bool bias = true;
};

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Computes y[n, o, i] as the sum that defines it.
double convolved(const ConvCase& c, std::span<const float> x, std::span<const float> w, std::int64_t n, std::int64_t o,
                 std::int64_t i) {
  const std::int64_t first = o / (c.w[0] / c.groups) * c.w[1];
  double sum = 0;
  for (std::int64_t channel = 0; channel < c.w[1]; ++channel) {
    for (std::int64_t k = 0; k < c.w[2]; ++k) {
      const std::int64_t l = i * c.window.stride + k * c.window.dilation - c.window.pad_begin;
      if (l >= 0 && l < c.x[2]) {
        sum += static_cast<double>(x[at((n * c.x[1] + first + channel) * c.x[2] + l)]) *
               static_cast<double>(w[at((o * c.w[1] + channel) * c.w[2] + k)]);
      }
    }
  }
  return sum;
}

/// The parameter is the geometry.
class Conv1d : public ::testing::TestWithParam<ConvCase> {
 protected:
  static Composition conv(const ConvCase& c) {
    std::vector<TensorType> inputs = {f32(c.x), f32(c.w)};
    if (c.bias) {
      inputs.push_back(f32({c.w[0]}));
    }
    return {inputs, [&c](Builder& builder, const std::vector<TensorId>& x) {
              return translated(builder, "Conv", x,
                                {{"strides", {c.window.stride}},
                                 {"pads", {c.window.pad_begin, c.window.pad_end}},
                                 {"dilations", {c.window.dilation}}},
                                {{"group", c.groups}});
            }};
  }
};

TEST_P(Conv1d, ForwardAgreesWithTheDefinition) {
  const ConvCase& c = GetParam();
  Composition composition = conv(c);
  GraphRunner runner(composition.graph());
  composition.randomise(runner, 1.0F, 51);
  composition.run_forward(runner);
  const Shape& out = composition.y_shape();
  const std::int64_t reach = (c.w[2] - 1) * c.window.dilation + 1;
  const std::int64_t room = c.x[2] + c.window.pad_begin + c.window.pad_end - reach;
  ASSERT_EQ(out, (Shape{c.x[0], c.w[0], room / c.window.stride + 1}));
  const auto y = runner.floats(composition.y());
  for (std::int64_t k = 0; k < static_cast<std::int64_t>(y.size()); ++k) {
    const std::int64_t o = k / out[2] % out[1];
    const double bias = c.bias ? static_cast<double>(runner.floats(composition.input(2))[at(o)]) : 0.0;
    EXPECT_NEAR(y[at(k)],
                bias + convolved(c, runner.floats(composition.input(0)), runner.floats(composition.input(1)),
                                 k / out[2] / out[1], o, k % out[2]),
                1e-5);
  }
}

TEST_P(Conv1d, GradientAgreesWithDifferences) {
  Composition composition = conv(GetParam());
  GraphRunner runner(composition.graph());
  composition.randomise(runner, 1.0F, 52);
  composition.expect_gradients(runner, 0.5F, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Conv1d,
    ::testing::Values(
        ConvCase{.x = {2, 3, 7}, .w = {4, 3, 3}},
        ConvCase{.x = {1, 4, 10}, .w = {5, 4, 3}, .window = {.stride = 2}, .bias = false},
        ConvCase{.x = {1, 4, 10}, .w = {5, 4, 3}, .window = {.dilation = 2}},
        ConvCase{.x = {2, 2, 6}, .w = {3, 2, 4}, .window = {.pad_begin = 2, .pad_end = 1}},
        ConvCase{.x = {1, 4, 8}, .w = {6, 2, 3}, .window = {.stride = 2, .pad_begin = 1, .pad_end = 1}, .groups = 2},
        ConvCase{.x = {2, 5, 6}, .w = {5, 1, 3}, .window = {.pad_begin = 1}, .groups = 5},
        ConvCase{.x = {1, 3, 5}, .w = {2, 3, 1}, .bias = false}));

struct PoolCase {
  Shape x;
  std::int64_t size;
  Window window = {};
  std::int64_t L = 0;  ///< Length of y, by PyTorch's rule.
};

/// Returns the maximum and mean of window i of row `row`.
std::pair<double, double> pooled(const PoolCase& c, std::span<const float> x, std::int64_t row, std::int64_t i) {
  double largest = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double count = 0;
  for (std::int64_t k = 0; k < c.size; ++k) {
    const std::int64_t l = i * c.window.stride - c.window.pad_begin + k;
    const bool inside = l >= 0 && l < c.x[2];
    if (inside) {
      const auto value = static_cast<double>(x[at(row * c.x[2] + l)]);
      largest = std::max(largest, value);
      sum += value;
    }
    count += inside || (c.window.count_pad && l < c.x[2] + c.window.pad_end) ? 1 : 0;
  }
  return {largest, sum / count};
}

/// The parameter is the geometry.
class Pool1d : public ::testing::TestWithParam<PoolCase> {
 protected:
  static Composition pool(const PoolCase& c, bool maximum) {
    return {{f32(c.x)}, [&c, maximum](Builder& builder, const std::vector<TensorId>& x) {
              std::vector<Integer> integers = {{"ceil_mode", c.window.ceil}};
              if (!maximum) {
                integers.emplace_back("count_include_pad", c.window.count_pad);
              }
              return translated(builder, maximum ? "MaxPool" : "AveragePool", x,
                                {{"kernel_shape", {c.size}},
                                 {"strides", {c.window.stride}},
                                 {"pads", {c.window.pad_begin, c.window.pad_end}}},
                                integers);
            }};
  }
};

TEST_P(Pool1d, ForwardAgreesWithTheDefinition) {
  const PoolCase& c = GetParam();
  for (const bool maximum : {true, false}) {
    Composition composition = pool(c, maximum);
    GraphRunner runner(composition.graph());
    composition.randomise(runner, 1.0F, 53);
    composition.run_forward(runner);
    ASSERT_EQ(composition.y_shape(), (Shape{c.x[0], c.x[1], c.L}));
    const auto y = runner.floats(composition.y());
    for (std::int64_t k = 0; k < static_cast<std::int64_t>(y.size()); ++k) {
      const auto [largest, mean] = pooled(c, runner.floats(composition.input(0)), k / c.L, k % c.L);
      EXPECT_NEAR(y[at(k)], maximum ? largest : mean, 1e-6);
    }
  }
}

TEST_P(Pool1d, GradientAgreesWithDifferences) {
  for (const bool maximum : {true, false}) {
    Composition composition = pool(GetParam(), maximum);
    GraphRunner runner(composition.graph());
    composition.randomise(runner, 1.0F, 54);
    distinct(runner.floats(composition.input(0)), 0.1F, 54);
    composition.expect_gradients(runner, 0.02F, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Pool1d,
    ::testing::Values(PoolCase{.x = {2, 3, 8}, .size = 2, .window = {.stride = 2}, .L = 4},
                      PoolCase{.x = {1, 4, 10}, .size = 4, .window = {.stride = 4}, .L = 2},
                      PoolCase{.x = {1, 2, 7},
                               .size = 3,
                               .window = {.stride = 2, .pad_begin = 1, .pad_end = 1, .count_pad = true},
                               .L = 4},
                      PoolCase{.x = {1, 2, 8}, .size = 3, .window = {.stride = 2, .ceil = true}, .L = 4}));

}  // namespace
}  // namespace poprun
