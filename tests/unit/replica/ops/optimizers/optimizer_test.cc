/// Compares the update rules with hand arithmetic and, over 20 steps, with a second version in double that is written
/// from the formulas of the papers and of torch.optim.

#include "replica/ops/optimizers/optimizer.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/ops/optimizers/square_sum.h"
#include "replica/ops/optimizers/update_rule.h"
#include "tests/unit/replica/update_runner.h"

namespace poprun::optimizer_test {
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
constexpr double kTrust = 0.1;

Attributes attributes_of(const std::string& kind) {
  Attributes attributes{{"scale", kScale}, {"weight_decay", kDecay}};
  if (kind == "momentum" || kind == "nesterov") {
    attributes.set("momentum", kMomentum);
    attributes.set("nesterov", std::int64_t{kind == "nesterov" ? 1 : 0});
  } else if (kind == "lars") {
    attributes.set("momentum", kMomentum);
    attributes.set("trust-coefficient", kTrust);
    attributes.set("epsilon", kEpsilon);
  } else if (kind == "lion") {
    attributes.set("beta1", kBeta1);
    attributes.set("beta2", kBeta2);
  } else if (kind == "adafactor") {
    attributes.set("square-epsilon", 1e-30);
    attributes.set("clip-threshold", 1.0);
    attributes.set("decay-exponent", 0.8);
  } else if (kind != "sgd") {
    attributes.set("beta1", kBeta1);
    attributes.set("beta2", kBeta2);
    attributes.set("epsilon", kEpsilon);
    if (kind == "muon") {
      attributes.set("momentum", kMomentum);
    }
  }
  return attributes;
}

bool takes_step(const std::string& kind) {
  return attributes_of(kind).has("epsilon") ? attributes_of(kind).has("beta1") : kind == "adafactor";
}

std::size_t states_of(const std::string& kind) {
  return kind == "adafactor" ? 1 : takes_step(kind) ? 2 : kind == "sgd" ? 0 : 1;
}

UpdateRunner runner_of(const std::string& kind, const std::vector<float>& weights) {
  return {kind == "nesterov" ? "momentum" : kind, attributes_of(kind), weights, states_of(kind),
          takes_step(kind) ? std::size_t{1} : std::size_t{0}};
}

std::vector<float> scalars_of(const std::string& kind, int step) {
  std::vector<float> scalars = {static_cast<float>(kRate)};
  if (takes_step(kind)) {
    scalars.push_back(static_cast<float>(step));
  }
  return scalars;
}

/// A second version of the rules, in double.
struct Naive {
  std::vector<double> w;
  std::vector<double> m = std::vector<double>(w.size());
  std::vector<double> v = std::vector<double>(w.size());

  void step(const std::string& kind, const std::vector<float>& g, int t) {
    if (kind == "adafactor") {
      of_vector(g, t);
      return;
    }
    if (takes_step(kind)) {
      adaptive(kind, g, t);
      return;
    }
    if (kind == "lion") {
      signed_step(g);
      return;
    }
    if (kind == "lars") {
      layerwise(g);
      return;
    }
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double d = kScale * static_cast<double>(g[i]) + kDecay * w[i];
      m[i] = kMomentum * m[i] + d;
      w[i] -= kRate * (kind == "sgd" ? d : kind == "momentum" ? m[i] : d + kMomentum * m[i]);
    }
  }

  void signed_step(const std::vector<float>& g) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double G = kScale * static_cast<double>(g[i]);
      const double mixed = kBeta1 * m[i] + (1 - kBeta1) * G;
      w[i] -= kRate * ((mixed > 0 ? 1 : -1) + kDecay * w[i]);
      m[i] = kBeta2 * m[i] + (1 - kBeta2) * G;
    }
  }

  /// Adafactor's update of a vector.
  void of_vector(const std::vector<float>& g, int t) {
    const double beta = 1 - std::pow(t, -0.8);
    std::vector<double> update(w.size());
    double squares = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double G = kScale * static_cast<double>(g[i]);
      v[i] = beta * v[i] + (1 - beta) * (G * G + 1e-30);
      update[i] = G / std::sqrt(v[i]);
      squares += update[i] * update[i];
    }
    const double clip = std::max(1.0, std::sqrt(squares / static_cast<double>(w.size())));
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] -= kRate * (update[i] / clip + kDecay * w[i]);
    }
  }

  void layerwise(const std::vector<float>& g) {
    double w_norm = 0;
    double g_norm = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      w_norm += w[i] * w[i];
      g_norm += std::pow(kScale * static_cast<double>(g[i]), 2);
    }
    const double local = kTrust * std::sqrt(w_norm) / (std::sqrt(g_norm) + kDecay * std::sqrt(w_norm) + kEpsilon);
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = kMomentum * m[i] + kRate * local * (kScale * static_cast<double>(g[i]) + kDecay * w[i]);
      w[i] -= m[i];
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
  // 37 elements are whole vectors and a remainder on every instruction set.
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
  const Optimizer& optimizer = *find_optimizer(kind);
  const Operator& reads_gradient = optimizer.moments ? *optimizer.moments
                                   : optimizer.norms ? *optimizer.norms
                                                     : optimizer.rule;

  const auto shape = reads_gradient.shape(signature);

  ASSERT_FALSE(shape);
  EXPECT_THAT(shape.error().message, HasSubstr(reads_gradient.kind + " needs w"));
  EXPECT_TRUE(runner_of(GetParam(), {1, 2}).shape());
}

INSTANTIATE_TEST_SUITE_P(Rules, UpdateRule,
                         ::testing::Values("sgd", "momentum", "nesterov", "adam", "adamw", "lamb", "lars", "lion",
                                           "adafactor", "muon"));

/// An operator of an optimiser, with its inputs and the number of its outputs.
struct Declared {
  Operator op;
  Signature signature;
  std::size_t outputs;
};

std::vector<Declared> declared_by(const Optimizer& optimizer) {
  const TensorType tensor{DataType::kF32, {5}, {}};
  const TensorType scalar{DataType::kF32, {}, {}};
  const std::size_t states = optimizer.states_of(tensor).size();
  const std::size_t counts = optimizer.counts_updates ? 1 : 0;
  Attributes attributes{{"scale", 1.0}, {"weight_decay", 0.0}};
  for (const HyperParameter& own : optimizer.hyper_parameters) {
    attributes.set(own.name, own.range ? Attribute{own.range->most / 2} : std::int64_t{1});
  }
  const TensorType squares{DataType::kI32, {2, SquareSum::kLimbs}, {}};
  std::vector<TensorType> inputs(2 + states, tensor);
  if (!optimizer.moments) {
    std::vector<Declared> all;
    if (optimizer.norms) {
      all.push_back({*optimizer.norms, {{tensor, tensor}, {}, {}}, 1});
      inputs.push_back(squares);
    }
    inputs.resize(inputs.size() + 1 + counts, scalar);
    all.push_back({optimizer.rule, {inputs, {}, attributes}, 1 + states});
    return all;
  }
  std::vector<TensorType> then(1 + states, tensor);
  then.push_back(squares);
  inputs.resize(inputs.size() + counts, scalar);
  then.resize(then.size() + 1 + counts, scalar);
  return {{*optimizer.moments, {inputs, {}, attributes}, states + 1}, {optimizer.rule, {then, {}, attributes}, 1}};
}

TEST(Optimizers, TakeAFactorOfZeroAsAFactorAndOnlyTheirSignAsASkip) {
  for (const char* kind : {"sgd", "momentum", "nesterov", "adam", "adamw", "lamb", "lars", "lion"}) {
    SCOPED_TRACE(kind);
    const std::vector<float> weights = {1, -2, 4};
    const std::size_t states = states_of(kind);
    const auto after = [&](float factor) {
      UpdateRunner runner{std::string_view{kind} == "nesterov" ? "momentum" : kind, attributes_of(kind), weights,
                          states, takes_step(kind) ? std::size_t{2} : std::size_t{1}};
      std::vector<float> scalars = scalars_of(kind, 1);
      scalars.push_back(factor);
      runner.step({3, 3, 3}, scalars);
      return std::vector<float>(runner.weights().begin(), runner.weights().end());
    };
    EXPECT_EQ(after(update_rule::kSkip), weights);
    // The smallest possible factor, multiplied by a scale of 0.5, is 0, so only weight decay is left.
    const std::vector<float> decayed = after(std::numeric_limits<float>::denorm_min());
    EXPECT_NE(decayed, weights);
    EXPECT_EQ(decayed, after(0));
    EXPECT_LT(decayed[2], weights[2]);
  }
}

TEST(Optimizers, ClipWithoutSkippingHoweverLargeTheNorm) {
  Graph graph;
  const TensorId g = graph.add_tensor({"g", {DataType::kF32, {2}, {}}, Role::kGradient});
  const TensorId sum = graph.add_tensor({"sum", {DataType::kI32, {SquareSum::kLimbs}, {}}, Role::kMetric});
  const TensorId scale = graph.add_tensor({"scale", {DataType::kF32, {}, {}}, Role::kStream});
  const TensorId factor = graph.add_tensor({"factor", {DataType::kF32, {}, {}}, Role::kMetric});
  testing::GraphRunner runner(graph);
  const auto factor_of = [&](float gradient, double max_norm) {
    std::ranges::fill(runner.floats(g), gradient);
    runner.floats(scale)[0] = 0x1p24F;
    runner.run({"sum_of_squares", {g}, {sum}, {}});
    runner.run({"loss_scale_factor", {sum, scale}, {factor}, {{"scale", 1.0}, {"max_norm", max_norm}}});
    return runner.floats(factor)[0];
  };
  EXPECT_EQ(factor_of(1e38F, 1e-30), 0) << "rounded";
  EXPECT_EQ(factor_of(std::numeric_limits<float>::infinity(), 1), update_rule::kSkip);
  EXPECT_EQ(factor_of(0, 1), 0x1p-24F);
}

TEST(Optimizers, DeclareWhatTheirRulesTake) {
  for (const Optimizer& optimizer : all_optimizers()) {
    for (const Declared& declared : declared_by(optimizer)) {
      SCOPED_TRACE(declared.op.kind);
      const auto outputs = declared.op.shape(declared.signature);
      ASSERT_TRUE(outputs) << outputs.error().message;
      EXPECT_EQ(outputs->size(), declared.outputs);
      EXPECT_NE(find_operator(declared.op.kind), nullptr);
      if (declared.signature.attributes.values().empty()) {
        continue;  // An operator that only sums.
      }
      for (const HyperParameter& own : optimizer.hyper_parameters) {
        Signature without = declared.signature;
        without.attributes = {};
        for (const auto& [name, value] : declared.signature.attributes.values()) {
          if (name != own.name) {
            without.attributes.set(name, value);
          }
        }
        EXPECT_FALSE(declared.op.shape(without)) << "takes no " << own.name;
      }
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

/// Runs an operator of LAMB once on tensors of 6 elements, which are given in the order of its operands.
class LambOperator {
 public:
  LambOperator(const std::string& kind, std::size_t tensors, bool squares, std::int64_t n) {
    Operation operation{kind, {}, {}, attributes_of("lamb")};
    const auto add = [&](const std::string& name, TensorType type) {
      operation.inputs.push_back(graph_.add_tensor({name, std::move(type)}));
    };
    for (std::size_t t = 0; t < tensors; ++t) {
      add("t" + std::to_string(t), {DataType::kF32, {n}, {}});
    }
    if (squares) {
      add("squares", {DataType::kI32, {2, SquareSum::kLimbs}, {}});
      add("rate", {DataType::kF32, {}, {}});
      operation.outputs = {TensorId{0}};
    } else {
      operation.outputs = {TensorId{2}, TensorId{3}, TensorId{5}};
    }
    add("step", {DataType::kF32, {}, {}});
    if (!squares) {
      graph_.add_tensor({"squares", {DataType::kI32, {2, SquareSum::kLimbs}, {}}});
    }
    operation_ = operation;
    runner_.emplace(graph_);
    runner_->floats(graph_.find("step"))[0] = 1;
  }

  std::span<float> floats(std::uint32_t tensor) { return runner_->floats(TensorId{tensor}); }
  float& rate() { return runner_->floats(graph_.find("rate"))[0]; }
  std::span<std::int32_t> squares() {
    return {reinterpret_cast<std::int32_t*>(runner_->bytes(graph_.find("squares"))), 2 * SquareSum::kLimbs};
  }
  void run() { runner_->run(operation_); }

 private:
  Graph graph_;
  Operation operation_;
  std::optional<testing::GraphRunner> runner_;
};

TEST(Lamb, OnPiecesWithTheirSquaresAddedGivesTheBitsOfTheWhole) {
  constexpr std::int64_t kWhole = 12;
  const auto updated = [](std::int64_t pieces) {
    const std::int64_t n = kWhole / pieces;
    std::deque<LambOperator> moments;  // A deque does not move its elements, and a runner refers to its graph.
    std::vector<std::int32_t> sums(2 * SquareSum::kLimbs);
    for (std::int64_t p = 0; p < pieces; ++p) {
      LambOperator& one = moments.emplace_back("lamb_moments", 4, false, n);
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<double>(p * n + i);
        one.floats(0)[static_cast<std::size_t>(i)] = static_cast<float>(std::sin(at));
        one.floats(1)[static_cast<std::size_t>(i)] = static_cast<float>(std::cos(7 * at));
      }
      one.run();
      for (std::size_t k = 0; k < sums.size(); ++k) {
        sums[k] += one.squares()[k];  // Adds the limbs as an all-reduce of i32 does.
      }
    }
    std::vector<float> weights;
    for (LambOperator& one : moments) {
      LambOperator apply("lamb", 3, true, n);
      std::ranges::copy(one.floats(0), apply.floats(0).begin());
      std::ranges::copy(one.floats(2), apply.floats(1).begin());
      std::ranges::copy(one.floats(3), apply.floats(2).begin());
      std::ranges::copy(sums, apply.squares().begin());
      apply.rate() = 0.1F;
      apply.run();
      weights.insert(weights.end(), apply.floats(0).begin(), apply.floats(0).end());
    }
    return weights;
  };

  const std::vector<float> whole = updated(1);

  EXPECT_EQ(updated(2), whole);
  EXPECT_EQ(updated(4), whole);
  EXPECT_EQ(updated(12), whole);
}

TEST(Lamb, TakesRatioOneWhereTheWeightsAreZero) {
  UpdateRunner runner = runner_of("lamb", {0.0F, 0.0F});

  runner.step({1.0F, -2.0F}, {0.1F, 1.0F});

  EXPECT_NEAR(runner.weights()[0], -0.1, 1e-5);
  EXPECT_NEAR(runner.weights()[1], 0.1, 1e-5);
}

TEST(Lars, TakesAStepOfRateTimesTrustTimesTheWeightsNorm) {
  Attributes attributes = attributes_of("lars");
  attributes.set("weight_decay", 0.0);
  attributes.set("epsilon", 0.0);
  UpdateRunner runner{"lars", attributes, {3.0F, 4.0F}, 1, 0};

  runner.step({1.0F, -2.0F}, {0.5F});

  const double dx = static_cast<double>(runner.weights()[0]) - 3;
  const double dy = static_cast<double>(runner.weights()[1]) - 4;
  EXPECT_NEAR(std::hypot(dx, dy), 0.5 * kTrust * 5, 1e-6);
}

TEST(Lars, TakesTheRateAsItIsWhereTheWeightsOrTheTrustCoefficientAreZero) {
  UpdateRunner zero = runner_of("lars", {0.0F, 0.0F});
  Attributes exempt = attributes_of("lars");
  exempt.set("weight_decay", 0.0);
  exempt.set("trust-coefficient", 0.0);
  UpdateRunner plain{"lars", exempt, {3.0F, 4.0F}, 1, 0};

  zero.step({1.0F, -2.0F}, {0.1F});
  plain.step({1.0F, -2.0F}, {0.1F});

  EXPECT_FLOAT_EQ(zero.weights()[0], -0.05F);
  EXPECT_FLOAT_EQ(zero.weights()[1], 0.1F);
  EXPECT_FLOAT_EQ(plain.weights()[0], 2.95F);
  EXPECT_FLOAT_EQ(plain.weights()[1], 4.1F);
}

}  // namespace
}  // namespace poprun::optimizer_test
