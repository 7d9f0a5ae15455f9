#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "differences.h"
#include "graph_runner.h"
#include "replica/compiler/arithmetic/differentiation.h"

namespace poprun::testing {

/// Several operations between parameters and one result y. Computes y, and compares the gradients that `differentiate`
/// derives with central differences of L = sum(dy * y).
class Composition {
 public:
  /// The composed function: takes the inputs, which are also parameters called x0, x1, ..., and returns y.
  using Compose = std::function<TensorId(Builder&, const std::vector<TensorId>&)>;

  Composition(const std::vector<TensorType>& inputs, const Compose& compose) {
    graph_.functions = {{"load", {{1, {}}}}, {"test", {{1, {}}}}};
    Builder builder(graph_, {1, 0}, "");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs_.push_back(graph_.add_tensor({"x" + std::to_string(i), inputs[i], Role::kParameter}));
    }
    y_ = compose(builder, inputs_);
    forward_ = builder.operations();
    dy_ = graph_.add_tensor({"dy", graph_.tensor(y_).type, Role::kActivation});
    const TensorId product = builder.add_one("mul", {y_, dy_}, {}, "product");
    const TensorId loss =
        builder.add_one("sum_to", {product}, {{"shape", Shape{}}, {"layout", std::string{"row-major"}}}, "loss");
    const auto gradients =
        differentiate(builder, {{loss, builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", 1.0}}, "one")}});
    EXPECT_TRUE(gradients) << gradients.error().message;
    if (gradients) {
      gradients_ = *gradients;
    }
    all_ = builder.operations();
  }

  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] TensorId input(std::size_t i) const { return inputs_[i]; }
  [[nodiscard]] TensorId y() const { return y_; }
  [[nodiscard]] const Shape& y_shape() const { return graph_.tensor(y_).type.shape; }

  void randomise(GraphRunner& runner, float spread, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-spread, spread);
    for (const TensorId id : inputs_) {
      std::ranges::generate(runner.floats(id), [&] { return uniform(random); });
    }
    std::ranges::generate(runner.floats(dy_), [&] { return uniform(random); });
  }

  void run_forward(GraphRunner& runner) { runner.run(forward_); }

  /// Compares the gradient of every input with central differences. Requires: every input has a gradient.
  void expect_gradients(GraphRunner& runner, float h, double tolerance) {
    runner.run(all_);
    std::map<TensorId, std::vector<float>> sums;  // Sums over the uses of each input.
    for (const auto& [input, gradient] : gradients_) {
      const std::span<float> g = runner.floats(gradient);
      std::vector<float>& sum = sums[input];
      sum.resize(g.size());
      std::ranges::transform(g, sum, sum.begin(), std::plus<>{});
    }
    EXPECT_EQ(sums.size(), inputs_.size());
    for (const auto& [input, sum] : sums) {
      expect_differences(
          runner.floats(input), sum, [&] { return loss(runner); }, h, tolerance, graph_.tensor(input).name);
    }
  }

 private:
  double loss(GraphRunner& runner) {
    runner.run(forward_);
    return weighed_sum(runner.floats(y_), runner.floats(dy_));
  }

  Graph graph_;
  std::vector<TensorId> inputs_;
  TensorId y_{};
  TensorId dy_{};
  std::vector<Operation> forward_;
  std::vector<Operation> all_;
  std::vector<ParameterGradient> gradients_;
};

}  // namespace poprun::testing
