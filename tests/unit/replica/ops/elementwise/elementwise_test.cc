/// Elementwise operators: forward against the formula in double, gradients against central differences.

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun {
namespace {

using testing::f32;
using testing::GraphRunner;
using testing::image;
using testing::Probe;

struct BinaryCase {
  TensorType a, b;
  std::vector<std::int64_t> a_at, b_at;  ///< The elements combined in each element of the result.
};

class Binary : public ::testing::TestWithParam<BinaryCase> {};

/// Fills the operands with values away from zero, so that quotients stay small.
void fill_operands(Probe& probe, GraphRunner& runner) {
  probe.randomise(runner, 1.0F, 31);
  for (const TensorId id : probe.operation().inputs) {
    for (float& x : runner.floats(id)) {
      x += x < 0 ? -1.5F : 1.5F;
    }
  }
}

TEST_P(Binary, ForwardAgreesWithTheFormula) {
  using Formula = double (*)(double, double);
  const std::vector<std::pair<std::string, Formula>> formulas = {
      {"add", [](double a, double b) { return a + b; }},
      {"sub", [](double a, double b) { return a - b; }},
      {"mul", [](double a, double b) { return a * b; }},
      {"div", [](double a, double b) { return a / b; }},
      {"max", [](double a, double b) { return a > b ? a : b; }},
      {"min", [](double a, double b) { return a < b ? a : b; }},
      {"fmod", [](double a, double b) { return std::fmod(a, b); }},
      {"mod", [](double a, double b) { return a - b * std::floor(a / b); }},
      {"prelu", [](double a, double b) { return a > 0 ? a : a * b; }}};
  const BinaryCase& c = GetParam();
  for (const auto& [kind, formula] : formulas) {
    Probe probe(kind, {c.a, c.b}, {}, 1);
    GraphRunner runner(probe.graph());
    fill_operands(probe, runner);
    runner.run(probe.operation());
    const auto a = runner.floats(probe.operation().inputs[0]);
    const auto b = runner.floats(probe.operation().inputs[1]);
    const auto y = runner.floats(probe.operation().outputs[0]);
    ASSERT_EQ(y.size(), c.a_at.size());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto at_a = static_cast<std::size_t>(c.a_at[i]);
      const auto at_b = static_cast<std::size_t>(c.b_at[i]);
      EXPECT_NEAR(y[i], formula(static_cast<double>(a[at_a]), static_cast<double>(b[at_b])), 1e-6)
          << kind << " element " << i;
    }
  }
}

TEST_P(Binary, GradientAgreesWithDifferences) {
  for (const std::string kind : {"add", "sub", "mul", "div"}) {
    Probe probe(kind, {GetParam().a, GetParam().b}, {}, 1);
    GraphRunner runner(probe.graph());
    fill_operands(probe, runner);
    probe.expect_gradients(runner, kind == "div" ? 0.02F : 0.5F, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Binary,
    ::testing::Values(BinaryCase{f32({2, 3}), f32({2, 3}), {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}},
                      BinaryCase{f32({2, 3}), f32({}), {0, 1, 2, 3, 4, 5}, {0, 0, 0, 0, 0, 0}},
                      BinaryCase{f32({3}), f32({2, 3}), {0, 1, 2, 0, 1, 2}, {0, 1, 2, 3, 4, 5}},
                      BinaryCase{f32({2, 1}), f32({1, 3}), {0, 0, 0, 1, 1, 1}, {0, 1, 2, 0, 1, 2}},
                      BinaryCase{f32({2, 1, 2}), f32({2, 1}), {0, 1, 0, 1, 2, 3, 2, 3}, {0, 0, 1, 1, 0, 0, 1, 1}},
                      // Two channels of two pixels are stored by pixels on the left and by planes on the right.
                      BinaryCase{image({1, 2, 1, 2}), f32({1, 2, 1, 2}), {0, 1, 2, 3}, {0, 2, 1, 3}},
                      BinaryCase{image({1, 2, 1, 2}), f32({2, 1, 1}), {0, 1, 2, 3}, {0, 1, 0, 1}}));

// Every other element of a is below all of b, the rest are above, so each operand is chosen somewhere.
TEST_P(Binary, GradientOfAChoiceAgreesWithDifferences) {
  for (const std::string kind : {"max", "min", "prelu"}) {
    Probe probe(kind, {GetParam().a, GetParam().b}, {}, 1);
    GraphRunner runner(probe.graph());
    fill_operands(probe, runner);
    float sign = 1;
    for (float& x : runner.floats(probe.operation().inputs[0])) {
      x = sign * (3 + std::abs(x));
      sign = -sign;
    }
    probe.expect_gradients(runner, 0.5F, 1e-3);
  }
}

TEST_P(Binary, PowersAndTheirGradientsAgreeWithTheFormula) {
  const BinaryCase& c = GetParam();
  Probe probe("pow", {c.a, c.b}, {}, 1);
  GraphRunner runner(probe.graph());
  fill_operands(probe, runner);
  const auto a = runner.floats(probe.operation().inputs[0]);
  const auto b = runner.floats(probe.operation().inputs[1]);
  std::ranges::transform(a, a.begin(), [](float x) { return std::abs(x); });
  runner.run(probe.operation());
  const auto y = runner.floats(probe.operation().outputs[0]);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double expected = std::pow(static_cast<double>(a[static_cast<std::size_t>(c.a_at[i])]),
                                     static_cast<double>(b[static_cast<std::size_t>(c.b_at[i])]));
    EXPECT_NEAR(y[i], expected, 1e-6 * expected);
  }
  probe.expect_gradients(runner, 0.01F, 2e-3);
}

struct Derivatives {
  float y, by_0, by_1;
};

/// Returns the value and derivatives of KIND for one pair of numbers.
Derivatives of_pair(const std::string& kind, float a, float b) {
  Probe probe(kind, {f32({1}), f32({})}, {}, 1);
  GraphRunner runner(probe.graph());
  runner.floats(probe.operation().inputs[0])[0] = a;
  runner.floats(probe.operation().inputs[1])[0] = b;
  runner.floats(probe.dy())[0] = 1;
  runner.run(probe.graph().functions[1].regions[0].operations);
  const auto last = [&](std::string name) {
    if (!probe.graph().has(name)) {
      return 1.0F;  // The output's gradient.
    }
    while (probe.graph().has(name + "'")) {
      name += "'";
    }
    return runner.floats(probe.graph().find(name))[0];
  };
  return {runner.floats(probe.operation().outputs[0])[0], last("g0"), last("g1")};
}

TEST(Remainder, TakesTheSignOfTheDivisorOrOfTheDividend) {
  // -7 = -3 * 3 + 2 = -2 * 3 - 1; the derivative with respect to the divisor is minus the integer quotient.
  EXPECT_EQ(of_pair("mod", -7, 3).y, 2.0F);
  EXPECT_EQ(of_pair("mod", -7, 3).by_0, 1.0F);
  EXPECT_EQ(of_pair("mod", -7, 3).by_1, 3.0F);
  EXPECT_EQ(of_pair("fmod", -7, 3).y, -1.0F);
  EXPECT_EQ(of_pair("fmod", -7, 3).by_1, 2.0F);
  EXPECT_EQ(of_pair("mod", 7, -3).y, -2.0F);
  EXPECT_EQ(of_pair("mod", 16777215, 4096).y, 4095.0F);
}

TEST(Pow, HasItsLimitsWhereTheFormulaHasNone) {
  EXPECT_EQ(of_pair("pow", -3, 2).y, 9.0F);
  EXPECT_EQ(of_pair("pow", -3, 2).by_0, -6.0F);
  EXPECT_EQ(of_pair("pow", -2, 3).y, -8.0F);
  EXPECT_EQ(of_pair("pow", 0, 0).y, 1.0F);
  EXPECT_EQ(of_pair("pow", 0, 0).by_0, 0.0F);
  EXPECT_EQ(of_pair("pow", 0, 2).by_0, 0.0F);
  EXPECT_EQ(of_pair("pow", 0, 3).by_1, 0.0F);
}

TEST(MaxAndMin, KeepNaNAndGiveTheGradientOfATieToTheFirst) {
  const float nan = std::nanf("");
  for (const std::string kind : {"max", "min"}) {
    EXPECT_TRUE(std::isnan(of_pair(kind, nan, 1).y)) << kind;
    EXPECT_TRUE(std::isnan(of_pair(kind, 1, nan).y)) << kind;
    EXPECT_EQ(of_pair(kind, 2, 2).by_0, 1.0F) << kind;
    EXPECT_EQ(of_pair(kind, 2, 2).by_1, 0.0F) << kind;
  }
}

TEST(SumTo, AddsWhatWasRepeated) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}};
  Builder builder(graph, {0, 0}, "");
  const TensorId x = graph.add_tensor({"x", f32({2, 37}), Role::kActivation});
  const auto sum = [&](Shape shape, const std::string& name) {
    return builder.add_one("sum_to", {x}, {{"shape", std::move(shape)}, {"layout", std::string{"row-major"}}}, name);
  };
  const TensorId rows = sum({2, 1}, "rows");
  const TensorId columns = sum({37}, "columns");
  GraphRunner runner(graph);
  for (std::size_t i = 0; i < 74; ++i) {
    runner.floats(x)[i] = static_cast<float>(i);
  }

  runner.run(builder.operations());

  EXPECT_THAT(runner.floats(rows), ::testing::ElementsAre(666.0F, 2035.0F));
  EXPECT_EQ(runner.floats(columns)[0], 37.0F);
  EXPECT_EQ(runner.floats(columns)[36], 109.0F);
}

struct UnaryCase {
  std::string kind;
  double (*formula)(double);
  float least;         ///< The smallest argument.
  float step = 0.22F;  ///< Distance between arguments.
};

class Unary : public ::testing::TestWithParam<UnaryCase> {
 protected:
  Unary() : probe_(GetParam().kind, {f32({5, 7})}, {}, 1), runner_(probe_.graph()) {
    probe_.randomise(runner_, 1.0F, 33);
    const auto x = runner_.floats(probe_.operation().inputs[0]);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = GetParam().least + GetParam().step * static_cast<float>(i);
    }
  }
  Probe probe_;
  GraphRunner runner_;
};

TEST_P(Unary, ForwardAgreesWithTheFormula) {
  runner_.run(probe_.operation());
  const auto x = runner_.floats(probe_.operation().inputs[0]);
  const auto y = runner_.floats(probe_.operation().outputs[0]);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = GetParam().formula(static_cast<double>(x[i]));
    EXPECT_NEAR(y[i], expected, 1e-6 + 1e-5 * std::abs(expected)) << x[i];
  }
}

TEST_P(Unary, GradientAgreesWithDifferences) {
  probe_.expect_gradients(runner_, 0.01F, 2e-3);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Unary,
    ::testing::Values(
        UnaryCase{"gelu", [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }, -3.7F},
        UnaryCase{"gelu_tanh",
                  [](double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); },
                  -3.7F},
        UnaryCase{"tanh", [](double x) { return std::tanh(x); }, -3.7F},
        UnaryCase{"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -3.7F},
        UnaryCase{"exp", [](double x) { return std::exp(x); }, -3.7F},
        UnaryCase{"log", [](double x) { return std::log(x); }, 0.3F},
        UnaryCase{"sqrt", [](double x) { return std::sqrt(x); }, 0.3F},
        UnaryCase{"abs", [](double x) { return std::abs(x); }, -3.7F},
        UnaryCase{"neg", [](double x) { return -x; }, -3.7F},
        UnaryCase{"leaky_relu", [](double x) { return x > 0 ? x : 0.01 * x; }, -3.7F},
        UnaryCase{"elu", [](double x) { return x > 0 ? x : std::expm1(x); }, -3.7F},
        UnaryCase{"selu",
                  [](double x) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x)); },
                  -3.7F},
        UnaryCase{"softplus", [](double x) { return std::log1p(std::exp(x)); }, -3.7F},
        UnaryCase{"softplus", [](double x) { return std::log1p(std::exp(x)); }, -12.0F},
        UnaryCase{"reciprocal", [](double x) { return 1 / x; }, 0.5F},
        UnaryCase{"erf", [](double x) { return std::erf(x); }, -3.7F},
        UnaryCase{"sin", [](double x) { return std::sin(x); }, -3.7F},
        UnaryCase{"cos", [](double x) { return std::cos(x); }, -3.7F},
        UnaryCase{"tan", [](double x) { return std::tan(x); }, -1.2F, 0.07F},
        UnaryCase{"asin", [](double x) { return std::asin(x); }, -0.85F, 0.05F},
        UnaryCase{"acos", [](double x) { return std::acos(x); }, -0.85F, 0.05F},
        UnaryCase{"atan", [](double x) { return std::atan(x); }, -3.7F},
        UnaryCase{"sinh", [](double x) { return std::sinh(x); }, -3.7F},
        UnaryCase{"cosh", [](double x) { return std::cosh(x); }, -3.7F},
        UnaryCase{"asinh", [](double x) { return std::asinh(x); }, -3.7F},
        UnaryCase{"acosh", [](double x) { return std::acosh(x); }, 1.5F},
        UnaryCase{"atanh", [](double x) { return std::atanh(x); }, -0.85F, 0.05F},
        UnaryCase{"softsign", [](double x) { return x / (1 + std::abs(x)); }, -3.7F},
        UnaryCase{"mish", [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }, -3.7F},
        UnaryCase{"hard_sigmoid", [](double x) { return std::min(1.0, std::max(0.0, 0.2 * x + 0.5)); }, -3.7F},
        UnaryCase{"hard_swish", [](double x) { return x * std::min(6.0, std::max(0.0, x + 3)) / 6; }, -3.7F},
        UnaryCase{"thresholded_relu", [](double x) { return x > 1 ? x : 0; }, -3.6F},
        UnaryCase{"celu", [](double x) { return x > 0 ? x : std::expm1(x); }, -3.7F},
        UnaryCase{"shrink", [](double x) { return x < -0.5 || x > 0.5 ? x : 0; }, -3.7F},
        UnaryCase{"clip", [](double x) { return x; }, -3.7F}));

/// Returns the values and derivatives of KIND at each of `x`.
std::pair<std::vector<float>, std::vector<float>> of_each(const std::string& kind, const Attributes& attributes,
                                                          const std::vector<float>& x) {
  Probe probe(kind, {f32({static_cast<std::int64_t>(x.size())})}, attributes, 1);
  GraphRunner runner(probe.graph());
  std::ranges::copy(x, runner.floats(probe.operation().inputs[0]).begin());
  std::ranges::fill(runner.floats(probe.dy()), 1.0F);
  runner.run(probe.graph().functions[1].regions[0].operations);
  const auto y = runner.floats(probe.operation().outputs[0]);
  const auto g = runner.floats(probe.graph().find("g0"));
  return {{y.begin(), y.end()}, {g.begin(), g.end()}};
}

TEST(FunctionsInSteps, HaveTheirValuesAndNoGradient) {
  using ::testing::Each;
  using ::testing::ElementsAre;
  const std::vector<float> x = {-2.5F, -1.5F, -0.4F, 0.5F, 1.5F, 2.7F};
  EXPECT_THAT(of_each("round", {}, x).first, ElementsAre(-2, -2, 0, 0, 2, 3));
  EXPECT_THAT(of_each("floor", {}, x).first, ElementsAre(-3, -2, -1, 0, 1, 2));
  EXPECT_THAT(of_each("ceil", {}, x).first, ElementsAre(-2, -1, 0, 1, 2, 3));
  EXPECT_THAT(of_each("sign", {}, {-2, 0, 3}).first, ElementsAre(-1, 0, 1));
  for (const std::string kind : {"round", "floor", "ceil", "sign"}) {
    EXPECT_THAT(of_each(kind, {}, x).second, Each(0.0F)) << kind;
  }
}

TEST(Erf, IsExactToAFewUnitsInTheLastPlaceEverywhere) {
  std::vector<float> x;
  for (float value = 1e-6F; value < 8; value += 1e-3F) {
    x.insert(x.end(), {value, -value});
  }
  const std::vector<float> y = of_each("erf", {}, x).first;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = std::erf(static_cast<double>(x[i]));
    EXPECT_NEAR(y[i], expected, 5e-7 * std::abs(expected)) << x[i];
    EXPECT_LE(std::abs(y[i]), 1.0F) << x[i];
  }
  EXPECT_TRUE(std::isnan(of_each("erf", {}, {std::nanf("")}).first[0]));
}

TEST(Clip, IsDifferentiatedBetweenItsBoundsAndAtThem) {
  using ::testing::ElementsAre;
  const auto [y, g] = of_each("clip", {{"min", -1.0}, {"max", 2.0}}, {-3, -1, 0, 2, 5});
  EXPECT_THAT(y, ElementsAre(-1, -1, 0, 2, 2));
  EXPECT_THAT(g, ElementsAre(0, 1, 1, 1, 0));
  EXPECT_TRUE(std::isnan(of_each("clip", {{"max", 2.0}}, {std::nanf("")}).first[0]));
}

TEST(Clip, IsItsMaximumWhereItsMinimumIsAboveThat) {
  using ::testing::Each;
  EXPECT_THAT(of_each("clip", {{"min", 2.0}, {"max", -1.0}}, {-3, 0, 5}).first, Each(-1.0F));
}

TEST(Softplus, KeepsItsDigitsFarFromZero) {
  const std::vector<float> x = {-100, -80, -20, -10, -6, 0, 6, 20, 100};
  const std::vector<float> y = of_each("softplus", {}, x).first;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = std::log1p(std::exp(static_cast<double>(x[i])));
    EXPECT_NEAR(y[i], expected, 3e-7 * expected + 1e-44) << x[i];
  }
  EXPECT_TRUE(std::isnan(of_each("softplus", {}, {std::nanf("")}).first[0]));
}

TEST(Functions, TakeTheirParametersFromAttributes) {
  using ::testing::ElementsAre;
  EXPECT_THAT(of_each("hard_sigmoid", {{"alpha", 0.5}, {"beta", 0.25}}, {-1, 0, 1, 2}).first,
              ElementsAre(0, 0.25F, 0.75F, 1));
  EXPECT_THAT(of_each("shrink", {{"bias", 1.5}, {"lambd", 1.0}}, {-2, -1, 0.5F, 3}).first,
              ElementsAre(-0.5F, 0, 0, 1.5F));
  EXPECT_THAT(of_each("thresholded_relu", {{"alpha", 2.0}}, {1, 2, 3}).first, ElementsAre(0, 0, 3));
  EXPECT_FLOAT_EQ(of_each("celu", {{"alpha", 2.0}}, {-1}).first[0], 2 * std::expm1(-0.5F));
}

TEST(LeakyRelu, TakesItsSlopeFromTheAttribute) {
  Probe probe("leaky_relu", {f32({2})}, {{"alpha", 0.5}}, 1);
  GraphRunner runner(probe.graph());
  runner.floats(probe.operation().inputs[0])[0] = -3;
  runner.floats(probe.operation().inputs[0])[1] = 3;

  runner.run(probe.operation());

  EXPECT_THAT(runner.floats(probe.operation().outputs[0]), ::testing::ElementsAre(-1.5F, 3.0F));
}

}  // namespace
}  // namespace poprun
