/// Compares every operator's gradient with its definition in double, in all its cases.
///
/// For each input x, the growth of L = sum(dy * y) along a random direction v is computed twice: as sum(dx * v), by the
/// operator's gradient rule, and as (L(x + h v) - L(x - h v)) / 2h, by the definition.

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "case.h"
#include "tests/unit/replica/probe.h"

namespace poprun::testing::gradient_test {
namespace {

double sum_of_products(const Array& a, const Array& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    sum += a.values[i] * b.values[i];
  }
  return sum;
}

/// A use of an operator in float32, on operands as stored.
class Use {
 public:
  explicit Use(const Case& c)
      : case_(c), probe_(c.kind, types_of(c), c.attributes, output_count(c)), runner_(probe_.graph()) {
    runner_.moment = kMoment;
    const Arrays drawn = inputs_of(c, 1);
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      put(runner_.bytes(input(i)), probe_.type(input(i)), drawn[i]);
      inputs_.push_back(stored(input(i)));
    }
    probe_.randomise_output_gradients(runner_, 3);
    probe_.run(runner_);
  }

  /// Returns the operator's gradient with respect to input i, or zeros if it has none.
  [[nodiscard]] Array gradient(std::size_t i) {
    const std::optional<TensorId> gradient = probe_.gradient(i);
    return gradient ? stored(*gradient) : Array(inputs_[i].shape);
  }

  /// Returns the growth of L along `direction` of input i, by differences of the definition, which may not be finite.
  [[nodiscard]] double growth(std::size_t i, const Array& direction) {
    double largest = 0;
    for (const double x : inputs_[i].values) {
      largest = std::max(largest, std::abs(x));
    }
    const double h = 1e-6 * (largest == 0 ? 1 : largest);
    return (loss_at(i, direction, h) - loss_at(i, direction, -h)) / (2 * h);
  }

 private:
  static std::vector<TensorType> types_of(const Case& c) {
    std::vector<TensorType> types;
    for (const Input& input : c.inputs) {
      types.push_back(input.type);
      types.back().data = input.type.data == DataType::kF16 ? DataType::kF32 : input.type.data;
    }
    return types;
  }

  static std::size_t output_count(const Case& c) {
    return find_operator(c.kind)->shape({types_of(c), {}, c.attributes}).value().size();
  }

  [[nodiscard]] TensorId input(std::size_t i) const { return probe_.operation().inputs[i]; }
  [[nodiscard]] Array stored(TensorId id) { return get(runner_.bytes(id), probe_.type(id)); }

  [[nodiscard]] double loss_at(std::size_t i, const Array& direction, double step) {
    Arrays at = inputs_;
    for (std::size_t k = 0; k < at[i].values.size(); ++k) {
      at[i].values[k] += step * direction.values[k];
    }
    const Arrays outputs = case_.definition(at, case_.attributes);
    double loss = 0;
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      // Indices have no gradient.
      if (const std::optional<TensorId> dy = probe_.dy(k); dy && probe_.type(*dy).data == DataType::kF32) {
        loss += sum_of_products(stored(*dy), outputs[k]);
      }
    }
    return loss;
  }

  const Case& case_;
  Probe probe_;
  GraphRunner runner_;
  Arrays inputs_;
};

Array random_signs(const Shape& shape, std::uint32_t seed) {
  std::mt19937 random(seed);
  Array signs(shape);
  std::ranges::generate(signs.values, [&] { return random() % 2 == 0 ? -1.0 : 1.0; });
  return signs;
}

void expect_gradients(const Case& c) {
  SCOPED_TRACE(c.kind + " " + to_text(c.attributes));
  Use use(c);
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    if (c.inputs[i].type.data != DataType::kF16) {
      continue;
    }
    const Array dx = use.gradient(i);
    double size = 0;
    for (const double value : dx.values) {
      size += std::abs(value);
    }
    for (const std::uint32_t seed : {1U, 2U, 3U}) {
      const Array direction = random_signs(dx.shape, seed);
      const double growth = use.growth(i, direction);
      if (std::isfinite(growth)) {
        EXPECT_NEAR(sum_of_products(dx, direction), growth, 1e-4 * size + 1e-6) << "input " << i;
      }
    }
  }
}

/// The parameter is the kind of an operator with a gradient.
class Gradient : public ::testing::TestWithParam<std::string> {};

TEST_P(Gradient, AgreesWithDifferencesOfTheDefinition) {
  bool has_case = false;
  for (const Case& c : all_cases()) {
    if (c.kind == GetParam() && c.differentiable) {
      has_case = true;
      expect_gradients(c);
    }
  }
  EXPECT_TRUE(has_case) << GetParam() << ": add a Case to tests/unit/replica/ops/cases";
}

std::set<std::string> kinds_with_gradients() {
  std::set<std::string> kinds;
  for (const Operator& op : all_operators()) {
    if (op.gradient != nullptr && op.gradient != flat) {
      kinds.insert(op.kind);
    }
  }
  kinds.erase("round_through");  // Its gradient is not its slope, on purpose; random_test.cc checks it.
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Kinds, Gradient, ::testing::ValuesIn(kinds_with_gradients()),
                         [](const auto& kind) { return kind.param; });

}  // namespace
}  // namespace poprun::testing::gradient_test
