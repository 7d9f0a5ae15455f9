/// Products of matrices and the dense layer. The forward pass is compared with sums in double, and gradients with
/// central differences, which are exact up to rounding, since both operators are linear in each input.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/ops/builder/builder.h"
#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun {
namespace {

using testing::f32;
using testing::GraphRunner;
using testing::Probe;

struct MatmulCase {
  Shape a, b;
  std::int64_t transpose_a, transpose_b;
  double scale;
};

class Matmul : public ::testing::TestWithParam<MatmulCase> {
 protected:
  Matmul()
      : probe_("matmul", {f32(GetParam().a), f32(GetParam().b)},
               {{"transpose_a", GetParam().transpose_a},
                {"transpose_b", GetParam().transpose_b},
                {"scale", GetParam().scale}},
               1),
        runner_(probe_.graph()) {
    probe_.randomise(runner_, 1.0F, 21);
  }

  /// Returns element [batch, i, j] of an operand; `batch` is an index into the result's leading dimensions.
  double element(std::size_t input, const Shape& batch, std::int64_t i, std::int64_t j) {
    const Shape& shape = input == 0 ? GetParam().a : GetParam().b;
    const bool transposed = (input == 0 ? GetParam().transpose_a : GetParam().transpose_b) != 0;
    std::int64_t at = 0;
    const std::size_t missing = batch.size() + 2 - shape.size();
    for (std::size_t d = missing; d < batch.size(); ++d) {
      const std::int64_t size = shape[d - missing];
      at = at * size + (size == 1 ? 0 : batch[d]);
    }
    at = at * shape[shape.size() - 2] + (transposed ? j : i);
    at = at * shape.back() + (transposed ? i : j);
    return static_cast<double>(runner_.floats(probe_.operation().inputs[input])[static_cast<std::size_t>(at)]);
  }

  Probe probe_;
  GraphRunner runner_;
};

TEST_P(Matmul, GradientAgreesWithDifferences) {
  probe_.expect_gradients(runner_, 0.5F, 1e-4);
}

TEST_P(Matmul, ForwardAgreesWithTheDefinition) {
  runner_.run(probe_.operation());
  const TensorId c = probe_.operation().outputs[0];
  const Shape& shape = probe_.type(c).shape;
  const Shape& a = GetParam().a;
  const std::int64_t K = GetParam().transpose_a != 0 ? a[a.size() - 2] : a.back();
  for (std::int64_t at = 0; at < probe_.type(c).elements(); ++at) {
    Shape index(shape.size());
    std::int64_t rest = at;
    for (std::size_t d = shape.size(); d-- > 0;) {
      index[d] = rest % shape[d];
      rest /= shape[d];
    }
    const Shape batch(index.begin(), index.end() - 2);
    double sum = 0;
    for (std::int64_t k = 0; k < K; ++k) {
      sum += element(0, batch, index[index.size() - 2], k) * element(1, batch, k, index.back());
    }
    EXPECT_NEAR(runner_.floats(c)[static_cast<std::size_t>(at)], GetParam().scale * sum, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Matmul,
    ::testing::Values(MatmulCase{{3, 4}, {4, 5}, 0, 0, 1.0}, MatmulCase{{2, 3, 4}, {2, 4, 5}, 0, 0, 1.0},
                      MatmulCase{{2, 3, 3, 4}, {2, 3, 5, 4}, 0, 1, 0.5}, MatmulCase{{2, 4, 3}, {2, 4, 5}, 1, 0, 1.0},
                      MatmulCase{{2, 4, 3}, {2, 5, 4}, 1, 1, 2.0}, MatmulCase{{2, 3, 2, 4}, {4, 5}, 0, 0, 0.5},
                      MatmulCase{{2, 4, 2}, {5, 4}, 1, 1, 1.0}, MatmulCase{{3, 4}, {2, 4, 5}, 0, 0, 1.0},
                      MatmulCase{{2, 1, 3, 4}, {3, 4, 2}, 0, 0, 1.0}));

TEST(Matmul, SharedMatrixGradientAgreesWithDifferences) {
  for (const std::int64_t transpose_b : {0, 1}) {
    Probe probe("matmul", {f32({2, 3, 4}), f32(transpose_b != 0 ? Shape{5, 4} : Shape{4, 5})},
                {{"transpose_b", transpose_b}}, 1);
    GraphRunner runner(probe.graph());
    probe.randomise(runner, 1.0F, 22);
    probe.expect_gradients(runner, 0.5F, 1e-4);
  }
}

TEST(Matmul, RefusesLeadingDimensionsThatDoNotBroadcast) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}};
  Builder builder(graph, {0, 0}, "");
  const TensorId a = graph.add_tensor({"a", f32({2, 3, 4}), Role::kActivation});
  const TensorId b = graph.add_tensor({"b", f32({3, 4, 5}), Role::kActivation});

  builder.add_one("matmul", {a, b}, {}, "c");

  ASSERT_FALSE(builder.status());
  EXPECT_THAT(builder.status().error().message, ::testing::HasSubstr("given: (f32[2,3,4], f32[3,4,5])"));
}

struct LinearCase {
  Shape x, w;
  bool bias;
  std::int64_t input_major;
};

class Linear : public ::testing::TestWithParam<LinearCase> {};

TEST_P(Linear, GradientAgreesWithDifferences) {
  const LinearCase& c = GetParam();
  std::vector<TensorType> inputs = {f32(c.x), f32(c.w)};
  if (c.bias) {
    inputs.push_back(f32({c.w[c.input_major != 0 ? 1 : 0]}));
  }
  Probe probe("linear", inputs, {{"input_major", c.input_major}}, 1);
  GraphRunner runner(probe.graph());
  probe.randomise(runner, 1.0F, 23);
  probe.expect_gradients(runner, 0.5F, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Linear,
                         ::testing::Values(LinearCase{{3, 7}, {5, 7}, true, 0}, LinearCase{{2, 3, 4}, {5, 4}, true, 0},
                                           LinearCase{{2, 2, 2, 4}, {5, 4}, false, 0},
                                           LinearCase{{2, 3, 4}, {4, 5}, true, 1}, LinearCase{{4}, {5, 4}, true, 0}));

TEST(Linear, ForwardAgreesWithHandArithmetic) {
  Probe probe("linear", {f32({1, 2}), f32({2, 2}), f32({2})}, {}, 1);
  GraphRunner runner(probe.graph());
  std::ranges::copy(std::vector{2.0F, 3.0F}, runner.floats(probe.operation().inputs[0]).begin());
  std::ranges::copy(std::vector{1.0F, 10.0F, 100.0F, 1000.0F}, runner.floats(probe.operation().inputs[1]).begin());
  std::ranges::copy(std::vector{0.5F, -0.5F}, runner.floats(probe.operation().inputs[2]).begin());

  runner.run(probe.operation());

  EXPECT_THAT(runner.floats(probe.operation().outputs[0]), ::testing::ElementsAre(32.5F, 3199.5F));
}

TEST(Linear, TakesAnInputMajorWeight) {
  Probe probe("linear", {f32({1, 1, 2}), f32({2, 3}), f32({3})}, {{"input_major", std::int64_t{1}}}, 1);
  GraphRunner runner(probe.graph());
  std::ranges::copy(std::vector{2.0F, 3.0F}, runner.floats(probe.operation().inputs[0]).begin());
  std::ranges::copy(std::vector{1.0F, 10.0F, 100.0F, 0.0F, 1.0F, -1.0F},
                    runner.floats(probe.operation().inputs[1]).begin());
  std::ranges::copy(std::vector{0.5F, 0.0F, 0.0F}, runner.floats(probe.operation().inputs[2]).begin());

  runner.run(probe.operation());

  EXPECT_THAT(runner.floats(probe.operation().outputs[0]), ::testing::ElementsAre(2.5F, 23.0F, 197.0F));
}

}  // namespace
}  // namespace poprun
