/// Reductions over axes: forward against the definition in double, gradients against central differences.

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/base/half.h"
#include "replica/compiler/arithmetic/half_storage.h"
#include "replica/models/layers/shapes.h"
#include "tests/unit/replica/composition.h"
#include "tests/unit/replica/probe.h"

namespace poprun {
namespace {

using layers::Reduction;
using testing::Composition;
using testing::distinct;
using ::testing::ElementsAre;
using testing::f32;
using testing::GraphRunner;
using testing::image;
using testing::Probe;

struct Case {
  TensorType x;
  Shape axes;
};

/// Returns the memory position of the element at logical `index`.
std::size_t position(const TensorType& type, const Shape& index) {
  Shape order(type.shape.size());
  for (std::size_t d = 0; d < order.size(); ++d) {
    order[d] = static_cast<std::int64_t>(d);
  }
  if (type.layout == Layout::kChannelsLast) {
    order = {0, 2, 3, 1};
  }
  std::int64_t at = 0;
  for (const std::int64_t d : order) {
    at = at * type.shape[static_cast<std::size_t>(d)] + index[static_cast<std::size_t>(d)];
  }
  return static_cast<std::size_t>(at);
}

/// Calls visit(index) for every index of `shape`, row-major.
template <typename Visit>
void for_each_index(const Shape& shape, Visit visit) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    count *= size;
  }
  for (std::int64_t k = 0; k < count; ++k) {
    Shape index(shape.size());
    std::int64_t rest = k;
    for (std::size_t d = shape.size(); d-- > 0;) {
      index[d] = rest % shape[d];
      rest /= shape[d];
    }
    visit(index);
  }
}

/// Returns the elements of x that contribute to each element of the result, by the result's memory position.
std::vector<std::vector<double>> groups(const Case& c, std::span<const float> x) {
  TensorType y = c.x;
  for (const std::int64_t axis : c.axes) {
    y.shape[static_cast<std::size_t>(axis)] = 1;
  }
  std::vector<std::vector<double>> found(static_cast<std::size_t>(y.elements()));
  for_each_index(c.x.shape, [&](const Shape& index) {
    Shape reduced = index;
    for (const std::int64_t axis : c.axes) {
      reduced[static_cast<std::size_t>(axis)] = 0;
    }
    found[position(y, reduced)].push_back(static_cast<double>(x[position(c.x, index)]));
  });
  return found;
}

double reduced(Reduction how, const std::vector<double>& all) {
  double sum = 0, absolute = 0, squares = 0, product = 1, exponentials = 0;
  for (const double x : all) {
    sum += x;
    absolute += std::abs(x);
    squares += x * x;
    product *= x;
    exponentials += std::exp(x);
  }
  switch (how) {
    case Reduction::kSum:
      return sum;
    case Reduction::kMean:
      return sum / static_cast<double>(all.size());
    case Reduction::kMax:
      return std::ranges::max(all);
    case Reduction::kMin:
      return std::ranges::min(all);
    case Reduction::kProd:
      return product;
    case Reduction::kL1:
      return absolute;
    case Reduction::kL2:
      return std::sqrt(squares);
    case Reduction::kSumSquare:
      return squares;
    case Reduction::kLogSum:
      return std::log(sum);
    case Reduction::kLogSumExp:
      return std::log(exponentials);
  }
  return 0;
}

constexpr std::array kAll = {Reduction::kSum,    Reduction::kMean,     Reduction::kMax, Reduction::kMin,
                             Reduction::kProd,   Reduction::kL1,       Reduction::kL2,  Reduction::kSumSquare,
                             Reduction::kLogSum, Reduction::kLogSumExp};

/// The parameter is the case.
class Reduce : public ::testing::TestWithParam<Case> {
 protected:
  static Composition composition(Reduction how, bool keep_dims) {
    const Case& c = GetParam();
    return {{c.x}, [&](Builder& builder, const std::vector<TensorId>& x) {
              return layers::reduce(builder, "y", how, x[0], c.axes, keep_dims);
            }};
  }

  /// Fills x with values that are positive, so that logarithms are real, and distinct, so that extremes are unique.
  static void fill(Composition& reduction, GraphRunner& runner) {
    reduction.randomise(runner, 1.0F, 61);
    const auto x = runner.floats(reduction.input(0));
    distinct(x, 0.1F, 61);
    const float least = *std::ranges::min_element(x);
    for (float& value : x) {
      value = 0.4F + (value - least) * 0.6F;
    }
  }
};

TEST_P(Reduce, ForwardAgreesWithTheDefinition) {
  for (const Reduction how : kAll) {
    Composition reduction = composition(how, true);
    GraphRunner runner(reduction.graph());
    fill(reduction, runner);
    reduction.run_forward(runner);
    const auto expected = groups(GetParam(), runner.floats(reduction.input(0)));
    const auto y = runner.floats(reduction.y());
    ASSERT_EQ(y.size(), expected.size());
    for (std::size_t k = 0; k < y.size(); ++k) {
      const double value = reduced(how, expected[k]);
      EXPECT_NEAR(y[k], value, 1e-6 + 1e-5 * std::abs(value))
          << "reduction " << static_cast<int>(how) << " element " << k;
    }
  }
}

TEST_P(Reduce, GradientAgreesWithDifferences) {
  for (const Reduction how : kAll) {
    Composition reduction = composition(how, false);
    GraphRunner runner(reduction.graph());
    fill(reduction, runner);
    SCOPED_TRACE(static_cast<int>(how));
    reduction.expect_gradients(runner, 0.01F, 4e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Reduce,
                         ::testing::Values(Case{f32({3, 4}), {1}}, Case{f32({3, 4}), {0}}, Case{f32({2, 3, 2}), {2, 0}},
                                           Case{f32({7}), {0}}, Case{f32({2, 3, 2}), {0, 1, 2}},
                                           Case{f32({1, 2, 1, 3}), {1}}, Case{image({1, 3, 2, 2}), {2, 3}},
                                           Case{image({2, 3, 1, 2}), {1}}));

TEST(Reductions, SumsKeepTheirDigitsOverMillionsOfTerms) {
  // The sums are over rows, along rows, and over both. With equal terms, float32 sums lose most digits.
  constexpr std::int64_t kMany = 3'000'000;
  for (const auto& [shape, axes] :
       {std::pair{Shape{kMany, 2}, Shape{0}}, {Shape{2, kMany}, Shape{1}}, {Shape{kMany, 2}, Shape{0, 1}}}) {
    Graph graph;
    graph.functions = {{"load", {{1, {}}}}, {"test", {{1, {}}}}};
    Builder builder(graph, {1, 0}, "");
    const TensorId x = graph.add_tensor({"x", f32(shape), Role::kParameter});
    const TensorId y = layers::reduce(builder, "y", Reduction::kSum, x, axes, false);
    GraphRunner runner(graph);
    std::ranges::fill(runner.floats(x), 0.1F);

    runner.run(builder.operations());

    const double terms = static_cast<double>(2 * kMany) / static_cast<double>(runner.floats(y).size());
    EXPECT_FLOAT_EQ(runner.floats(y)[0], static_cast<float>(terms * static_cast<double>(0.1F)));
  }
}

TEST(Reductions, MeansInHalfPrecisionExistWhereSumsWouldBeInfinite) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}, {"test", {{1, {}}}}};
  Builder builder(graph, {1, 0}, "");
  const TensorId x = graph.add_tensor({"x", f32({2, 999}), Role::kParameter});
  const TensorId y = layers::reduce(builder, "y", Reduction::kMean, x, {1}, false);
  use_half(graph, {.half = true});
  GraphRunner runner(graph);
  std::vector<Half> values(2 * 999, to_half(100.0F));
  values[0] = to_half(10000.0F);
  std::memcpy(runner.bytes(x), values.data(), values.size() * sizeof(Half));

  runner.run(builder.operations());

  std::vector<Half> means(2);
  std::memcpy(means.data(), runner.bytes(y), 2 * sizeof(Half));
  EXPECT_THAT(means, ElementsAre(to_half(static_cast<float>((998.0 * 100 + 10000) / 999)), to_half(100.0F)));
}

TEST(ReduceDimensions, AreKeptOrDropped) {
  const auto type_of = [](const TensorType& x, const Shape& axes, bool keep_dims) {
    const Composition reduction({x}, [&](Builder& builder, const std::vector<TensorId>& inputs) {
      return layers::reduce(builder, "y", Reduction::kMean, inputs[0], axes, keep_dims);
    });
    return reduction.graph().tensor(reduction.y()).type;
  };
  EXPECT_EQ(type_of(f32({2, 3, 4}), {1}, true), f32({2, 1, 4}));
  EXPECT_EQ(type_of(f32({2, 3, 4}), {2, 0}, false), f32({3}));
  EXPECT_EQ(type_of(f32({2, 3}), {0, 1}, false), f32({}));
  EXPECT_EQ(type_of(image({2, 3, 4, 5}), {2, 3}, true), image({2, 3, 1, 1}));
  EXPECT_EQ(type_of(image({2, 3, 4, 5}), {2, 3}, false), f32({2, 3}));
}

TEST(ReduceDimensions, BehindTheRankAreRefusedByName) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}};
  Builder builder(graph, {0, 0}, "");
  const TensorId x = graph.add_tensor({"x", f32({3, 7}), Role::kActivation});

  layers::reduce(builder, "mean", Reduction::kMean, x, {0, 2}, true);

  ASSERT_FALSE(builder.status());
  EXPECT_EQ(builder.status().error().message, "mean: a reduction needs axes from 0 to 1; given: axes 0,2 of f32[3,7]");
}

// The first step fails and returns an arbitrary tensor, here of a lower rank, which later steps must not look at.
TEST(ReduceDimensions, OfIntegersAreRefusedByName) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}};
  Builder builder(graph, {0, 0}, "");
  graph.add_tensor({"scalar", f32({}), Role::kActivation});
  const TensorId x = graph.add_tensor({"x", {DataType::kI32, {3, 7}, {}}, Role::kActivation});

  layers::reduce(builder, "norm", Reduction::kL2, x, {0, 1}, false);

  ASSERT_FALSE(builder.status());
  EXPECT_EQ(builder.status().error().message.substr(0, 27), "norm.square: mul needs two ");
}

/// Returns the gradient of a reduction of four rows of three elements, with an output gradient of 1 for each row.
std::vector<float> gradient_of(const std::string& kind, const std::vector<float>& values) {
  Probe probe(kind, {f32({4, 3})}, {{"axes", Shape{1}}}, 1);
  GraphRunner runner(probe.graph());
  std::ranges::copy(values, runner.floats(probe.operation().inputs[0]).begin());
  std::ranges::fill(runner.floats(probe.dy()), 1.0F);
  runner.run(probe.graph().functions[1].regions[0].operations);
  const auto g = runner.floats(probe.graph().find("g0"));
  return {g.begin(), g.end()};
}

TEST(ReduceMax, GivesTheGradientOfATieToTheFirstOnly) {
  EXPECT_THAT(gradient_of("reduce_max", {1, 5, 5, 2, 2, 2, 0, 1, 2, 3, 2, 3}),
              ElementsAre(0, 1, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0));
}

TEST(ReduceProd, DifferentiatesRowsWithZeros) {
  EXPECT_THAT(gradient_of("reduce_prod", {2, 3, 4, 0, 3, 4, 0, 0, 4, 0, 0, 0}),
              ElementsAre(12, 8, 6, 12, 0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(ReduceMax, KeepsNaN) {
  for (const std::string kind : {"reduce_max", "reduce_min"}) {
    Probe probe(kind, {f32({3})}, {{"axes", Shape{0}}}, 1);
    GraphRunner runner(probe.graph());
    std::ranges::copy(std::vector{1.0F, std::nanf(""), 2.0F}, runner.floats(probe.operation().inputs[0]).begin());
    runner.run(probe.operation());
    EXPECT_TRUE(std::isnan(runner.floats(probe.operation().outputs[0])[0])) << kind;
  }
}

std::vector<std::int32_t> position_of(const std::string& kind, const Shape& shape, std::int64_t axis, bool last,
                                      const std::vector<float>& values) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}};
  Builder builder(graph, {0, 0}, "");
  const TensorId x = graph.add_tensor({"x", f32(shape), Role::kActivation});
  const TensorId y = builder.add_one(kind, {x}, {{"axis", axis}, {"last", std::int64_t{last}}}, "y");
  GraphRunner runner(graph);
  std::ranges::copy(values, runner.floats(x).begin());
  runner.run(builder.operations());
  std::vector<std::int32_t> found(static_cast<std::size_t>(graph.tensor(y).type.elements()));
  std::memcpy(found.data(), runner.bytes(y), found.size() * sizeof(std::int32_t));
  return found;
}

TEST(ArgMax, FindsTheFirstOrTheLastOfEquals) {
  const std::vector<float> x = {1, 4, 4, 7, 0, 7};
  EXPECT_THAT(position_of("arg_max", {2, 3}, 1, false, x), ElementsAre(1, 0));
  EXPECT_THAT(position_of("arg_max", {2, 3}, 1, true, x), ElementsAre(2, 2));
  EXPECT_THAT(position_of("arg_max", {2, 3}, 0, false, x), ElementsAre(1, 0, 1));
  EXPECT_THAT(position_of("arg_min", {2, 3}, 1, false, x), ElementsAre(0, 1));
  EXPECT_THAT(position_of("arg_min", {3, 2}, 0, true, x), ElementsAre(2, 0));
}

TEST(ArgMax, FindsNaN) {
  const std::vector<float> x = {1, std::nanf(""), 9, std::nanf("")};
  EXPECT_THAT(position_of("arg_max", {4}, 0, false, x), ElementsAre(1));
  EXPECT_THAT(position_of("arg_min", {4}, 0, false, x), ElementsAre(1));
}

struct ExpandCase {
  TensorType x, y;
  std::vector<float> expected;  ///< For x = 0, 1, 2, ... in memory.
};

TEST(Expand, RepeatsAndSumToIsItsGradient) {
  const Layout nhwc = Layout::kChannelsLast;
  const std::vector<ExpandCase> cases = {{f32({2, 1}), f32({2, 3}), {0, 0, 0, 1, 1, 1}},
                                         {f32({3}), f32({2, 3}), {0, 1, 2, 0, 1, 2}},
                                         {f32({}), f32({2, 2}), {0, 0, 0, 0}},
                                         {f32({2, 1, 2}), f32({2, 2, 2}), {0, 1, 0, 1, 2, 3, 2, 3}},
                                         // Two channels of two pixels: planes are on the left, pixels on the right.
                                         {f32({2, 1, 1}), f32({1, 2, 1, 2}, nhwc), {0, 1, 0, 1}},
                                         {f32({1, 2, 1, 2}), f32({1, 2, 1, 2}, nhwc), {0, 2, 1, 3}}};
  for (const ExpandCase& c : cases) {
    const Attributes attributes{{"shape", c.y.shape},
                                {"layout", std::string{c.y.layout == nhwc ? "nhwc" : "row-major"}}};
    Probe probe("expand", {c.x}, attributes, 1);
    GraphRunner runner(probe.graph());
    probe.randomise(runner, 1.0F, 55);
    const auto x = runner.floats(probe.operation().inputs[0]);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(i);
    }
    runner.run(probe.operation());
    EXPECT_THAT(runner.floats(probe.operation().outputs[0]), ::testing::ElementsAreArray(c.expected));
    probe.expect_gradients(runner, 0.5F, 1e-5);
  }
}

TEST(SumTo, HasAGradient) {
  for (const double scale : {1.0, 0.3}) {
    Probe probe("sum_to", {f32({2, 3})},
                {{"shape", Shape{2, 1}}, {"layout", std::string{"row-major"}}, {"scale", scale}}, 1);
    GraphRunner runner(probe.graph());
    probe.randomise(runner, 1.0F, 56);
    probe.expect_gradients(runner, 0.5F, 1e-5);
  }
}

TEST(CumulativeSum, DoesNotDrift) {
  constexpr std::int64_t kCount = 1 << 20;
  Graph graph;
  const TensorId x = graph.add_tensor({"x", {DataType::kF32, {kCount}, Layout::kRowMajor}, Role::kActivation});
  const TensorId y = graph.add_tensor({"y", {DataType::kF32, {kCount}, Layout::kRowMajor}, Role::kActivation});
  GraphRunner runner(graph);
  std::ranges::fill(runner.floats(x), 0.1F);
  runner.run(
      {"cum_sum", {x}, {y}, {{"axis", std::int64_t{0}}, {"exclusive", std::int64_t{0}}, {"reverse", std::int64_t{0}}}});
  EXPECT_EQ(runner.floats(y)[kCount - 1], 0.1F * kCount) << "a power of two times 0.1";
}

}  // namespace
}  // namespace poprun
