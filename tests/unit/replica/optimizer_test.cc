/// The update rules against hand arithmetic, and over 20 steps against a second version in double,
/// written from the formulas of the papers and of torch.optim.

#include "replica/ops/optimizers/optimizer.h"

#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "update_runner.h"

namespace poprun {
namespace {

using ::testing::HasSubstr;
using testing::UpdateRunner;

constexpr double kRate = 0.01;
constexpr double kScale = 0.5;
constexpr double kDecay = 0.1;
constexpr double kMomentum = 0.9;
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.99;
constexpr double kEpsilon = 1e-6;

Attributes attributes_of(const std::string& kind) {
  Attributes attributes{{"scale", kScale}, {"weight_decay", kDecay}};
  if (kind == "momentum" || kind == "nesterov") {
    attributes.set("momentum", kMomentum);
    attributes.set("nesterov", std::int64_t{kind == "nesterov" ? 1 : 0});
  } else if (kind != "sgd") {
    attributes.set("beta1", kBeta1);
    attributes.set("beta2", kBeta2);
    attributes.set("epsilon", kEpsilon);
  }
  return attributes;
}

bool takes_step(const std::string& kind) {
  return attributes_of(kind).has("beta1");
}

UpdateRunner runner_of(const std::string& kind, const std::vector<float>& weights) {
  const std::size_t states = takes_step(kind) ? 2 : kind == "sgd" ? 0 : 1;
  return {kind == "nesterov" ? "momentum" : kind, attributes_of(kind), weights, states,
          takes_step(kind) ? std::size_t{1} : std::size_t{0}};
}

std::vector<float> scalars_of(const std::string& kind, int step) {
  std::vector<float> scalars = {static_cast<float>(kRate)};
  if (takes_step(kind)) {
    scalars.push_back(static_cast<float>(step));
  }
  return scalars;
}

/// The rules again, in double.
struct Naive {
  std::vector<double> w;
  std::vector<double> m = std::vector<double>(w.size());
  std::vector<double> v = std::vector<double>(w.size());

  void step(const std::string& kind, const std::vector<float>& g, int t) {
    if (takes_step(kind)) {
      adaptive(kind, g, t);
      return;
    }
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double d = kScale * static_cast<double>(g[i]) + kDecay * w[i];
      m[i] = kMomentum * m[i] + d;
      w[i] -= kRate * (kind == "sgd" ? d : kind == "momentum" ? m[i] : d + kMomentum * m[i]);
    }
  }

  void adaptive(const std::string& kind, const std::vector<float>& g, int t) {
    std::vector<double> update(w.size());
    double w_norm = 0;
    double update_norm = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double d = kScale * static_cast<double>(g[i]) + (kind == "adam" ? kDecay * w[i] : 0);
      m[i] = kBeta1 * m[i] + (1 - kBeta1) * d;
      v[i] = kBeta2 * v[i] + (1 - kBeta2) * d * d;
      const double m_hat = m[i] / (1 - std::pow(kBeta1, t));
      const double v_hat = v[i] / (1 - std::pow(kBeta2, t));
      update[i] = m_hat / (std::sqrt(v_hat) + kEpsilon) + (kind == "adam" ? 0 : kDecay * w[i]);
      w_norm += w[i] * w[i];
      update_norm += update[i] * update[i];
    }
    const double ratio = kind == "lamb" ? std::sqrt(w_norm / update_norm) : 1;
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] -= kRate * ratio * update[i];
    }
  }
};

/// The parameter is the rule's name.
class UpdateRule : public ::testing::TestWithParam<const char*> {};

TEST_P(UpdateRule, FollowsItsFormulaOver20Steps) {
  // 37 elements: whole vectors and a remainder on every instruction set.
  std::vector<float> weights(37);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<float>(std::sin(static_cast<double>(i) + 1));
  }
  UpdateRunner runner = runner_of(GetParam(), weights);
  Naive naive{{weights.begin(), weights.end()}};

  for (int t = 1; t <= 20; ++t) {
    std::vector<float> gradient(weights.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = static_cast<float>(std::cos(3 * static_cast<double>(i) + t));
    }
    runner.step(gradient, scalars_of(GetParam(), t));
    naive.step(GetParam(), gradient, t);
  }

  for (std::size_t i = 0; i < weights.size(); ++i) {
    EXPECT_NEAR(runner.weights()[i], naive.w[i], 2e-6) << i;
    EXPECT_GT(std::abs(weights[i] - runner.weights()[i]), 1e-6) << i;
  }
}

TEST_P(UpdateRule, RefusesAGradientOfAnotherShape) {
  Signature signature{{}, {}, attributes_of(GetParam())};
  signature.inputs = {{DataType::kF32, {4}, {}}, {DataType::kF32, {5}, {}}};
  const std::string kind = std::string{GetParam()} == "nesterov" ? "momentum" : GetParam();

  const auto shape = find_operator(kind)->shape(signature);

  ASSERT_FALSE(shape);
  EXPECT_THAT(shape.error().message, HasSubstr(kind + " needs w"));
  EXPECT_TRUE(runner_of(GetParam(), {1, 2}).shape());
}

INSTANTIATE_TEST_SUITE_P(Rules, UpdateRule,
                         ::testing::Values("sgd", "momentum", "nesterov", "adam", "adamw", "lamb"));

/// The operands of an optimiser's rule, as declared.
Signature declared_signature(const Optimizer& optimizer) {
  const std::size_t tensors = 2 + optimizer.states.size();
  Signature signature;
  signature.inputs.assign(tensors, {DataType::kF32, {5}, {}});
  signature.inputs.resize(tensors + (optimizer.counts_updates ? 2 : 1), {DataType::kF32, {}, {}});
  signature.attributes = {{"scale", 1.0}, {"weight_decay", 0.0}};
  for (const HyperParameter& own : optimizer.hyper_parameters) {
    signature.attributes.set(own.name,
                             own.range ? Attribute{own.range->most / 2} : std::int64_t{1});
  }
  return signature;
}

TEST(Optimizers, DeclareWhatTheirRulesTake) {
  for (const Optimizer& optimizer : all_optimizers()) {
    SCOPED_TRACE(optimizer.name());
    const Signature declared = declared_signature(optimizer);
    const auto outputs = optimizer.rule.shape(declared);
    ASSERT_TRUE(outputs) << outputs.error().message;
    EXPECT_EQ(outputs->size(), 1 + optimizer.states.size());
    EXPECT_NE(find_operator(optimizer.name()), nullptr);
    for (const HyperParameter& own : optimizer.hyper_parameters) {
      Signature without = declared;
      without.attributes = {};
      for (const auto& [name, value] : declared.attributes.values()) {
        if (name != own.name) {
          without.attributes.set(name, value);
        }
      }
      EXPECT_FALSE(optimizer.rule.shape(without)) << "takes no " << own.name;
    }
  }
}

TEST(Optimizers, MeanOneThingByOneName) {
  std::map<std::string, HyperParameter> known;
  for (const Optimizer& optimizer : all_optimizers()) {
    for (const HyperParameter& own : optimizer.hyper_parameters) {
      const HyperParameter& first = known.emplace(own.name, own).first->second;
      EXPECT_EQ(first.help, own.help) << optimizer.name() << " " << own.name;
      ASSERT_EQ(first.range.has_value(), own.range.has_value());
      if (own.range) {
        EXPECT_EQ(*first.range, *own.range) << optimizer.name() << " " << own.name;
      }
    }
  }
}

TEST(Sgd, MovesByRateTimesScaledGradientAndDecay) {
  UpdateRunner runner = runner_of("sgd", {2.0F});

  runner.step({4.0F}, {0.5F});

  EXPECT_FLOAT_EQ(runner.weights()[0], 2.0F - 0.5F * (0.5F * 4.0F + 0.1F * 2.0F));
}

TEST(Momentum, AddsNineTenthsOfTheStepBefore) {
  UpdateRunner plain = runner_of("momentum", {0.0F});
  UpdateRunner nesterov = runner_of("nesterov", {0.0F});

  plain.step({2.0F}, {1.0F});     // v = 1
  nesterov.step({2.0F}, {1.0F});  // v = 1

  EXPECT_FLOAT_EQ(plain.weights()[0], -1.0F);
  EXPECT_FLOAT_EQ(nesterov.weights()[0], -1.9F);
}

TEST(Adam, FirstStepIsTheRateInTheGradientsDirection) {
  // m / (1 - beta1) = G and v / (1 - beta2) = G^2, so u = G / |G|.
  UpdateRunner runner = runner_of("adam", {0.0F, 0.0F});

  runner.step({1000.0F, -0.125F}, {0.25F, 1.0F});

  EXPECT_NEAR(runner.weights()[0], -0.25, 1e-6);
  EXPECT_NEAR(runner.weights()[1], 0.25, 1e-5);  // epsilon is 1e-6, small against 0.0625.
}

TEST(AdamW, DecaysTheWeightBesideTheUpdate) {
  UpdateRunner runner = runner_of("adamw", {8.0F});

  runner.step({0.0F}, {0.5F, 1.0F});

  EXPECT_FLOAT_EQ(runner.weights()[0], 8.0F - 0.5F * 0.1F * 8.0F);
}

TEST(Lamb, TakesAStepOfRateTimesTheWeightsNorm) {
  UpdateRunner runner = runner_of("lamb", {3.0F, 4.0F});

  runner.step({1.0F, -2.0F}, {0.1F, 1.0F});

  const double dx = static_cast<double>(runner.weights()[0]) - 3;
  const double dy = static_cast<double>(runner.weights()[1]) - 4;
  EXPECT_NEAR(std::hypot(dx, dy), 0.1 * 5, 1e-6);
}

TEST(Lamb, TakesRatioOneWhereTheWeightsAreZero) {
  UpdateRunner runner = runner_of("lamb", {0.0F, 0.0F});

  runner.step({1.0F, -2.0F}, {0.1F, 1.0F});

  EXPECT_NEAR(runner.weights()[0], -0.1, 1e-5);
  EXPECT_NEAR(runner.weights()[1], 0.1, 1e-5);
}

}  // namespace
}  // namespace poprun
