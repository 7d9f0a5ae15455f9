#pragma once

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "differences.h"
#include "graph_runner.h"
#include "replica/ops/builder/builder.h"

/// Compares an operator's gradient with central differences of its own forward pass.
///
/// The differentiated scalar is L = sum(dy * y) for a random dy, summed in double.
namespace poprun::testing {

/// One operator on f32 inputs (and, for a loss, labels), differentiated by its gradient rule.
class Probe final : public Differentiator {
 public:
  Probe(const std::string& kind, const std::vector<TensorType>& inputs, const Attributes& attributes,
        std::size_t output_count)
      : builder_(make_graph(), {1, 0}, "") {
    std::vector<TensorId> ids;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      ids.push_back(graph_.add_tensor({"x" + std::to_string(i), inputs[i], Role::kParameter}));
    }
    std::vector<std::string> names;
    for (std::size_t k = 0; k < output_count; ++k) {
      names.push_back("y" + std::to_string(k));
    }
    builder_.add(kind, ids, attributes, names);
    EXPECT_TRUE(builder_.status()) << builder_.status().error().message;
    operation_ = builder_.operations()[0];
    const Operator& op = *find_operator(kind);
    for (std::size_t k = 0; k < std::min(output_count, op.statistics_from); ++k) {
      dy_.push_back(graph_.add_tensor({"d" + names[k], graph_.tensor(operation_.outputs[k]).type, Role::kActivation}));
    }
    gradients_.resize(inputs.size());
    op.gradient(*this);
    EXPECT_TRUE(builder_.status()) << builder_.status().error().message;
  }

  [[nodiscard]] const Operation& operation() const override { return operation_; }
  [[nodiscard]] const TensorType& type(TensorId id) const override { return builder_.type(id); }
  [[nodiscard]] bool wants(std::size_t input) const override {
    return type(operation_.inputs[input]).data == DataType::kF32;
  }
  TensorId output_gradient(std::size_t output) override { return dy_.at(output); }
  void set_input_gradient(std::size_t input, TensorId gradient) override { gradients_[input] = gradient; }
  std::optional<TensorId> take_input_gradient(std::size_t /*input*/) override { return {}; }
  std::vector<TensorId> add(std::string kind, std::vector<TensorId> inputs, Attributes attributes,
                            const std::vector<std::size_t>& of_input) override {
    std::vector<std::string> names;
    for (const std::size_t input : of_input) {
      std::string name = "g" + std::to_string(input);
      while (graph_.has(name)) {
        name += "'";  // A gradient computed by several operations.
      }
      names.push_back(name);
    }
    return builder_.add(std::move(kind), std::move(inputs), std::move(attributes), names);
  }

  /// Calls expect_differences for every input.
  void expect_gradients(GraphRunner& runner, float h, double tolerance) {
    run(runner);
    for (std::size_t input = 0; input < gradients_.size(); ++input) {
      if (!gradients_[input]) {
        continue;
      }
      const std::span<float> g = runner.floats(*gradients_[input]);
      expect_differences(
          runner.floats(operation_.inputs[input]), {g.begin(), g.end()}, [&] { return loss(runner); }, h, tolerance,
          "input " + std::to_string(input));
    }
  }

  /// Runs forward and backward.
  void run(GraphRunner& runner) { runner.run(builder_.operations()); }

  void randomise(GraphRunner& runner, float spread, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-spread, spread);
    for (const TensorId id : operation_.inputs) {
      if (type(id).data == DataType::kF32) {
        std::ranges::generate(runner.floats(id), [&] { return uniform(random); });
      }
    }
    std::ranges::generate(runner.floats(dy()), [&] { return uniform(random); });
  }

  void randomise_output_gradients(GraphRunner& runner, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (const TensorId id : dy_) {
      std::ranges::generate(runner.floats(id), [&] { return uniform(random); });
    }
  }

  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] TensorId dy() const { return dy_.at(0); }

  /// Returns the gradient of L with respect to output k, or nothing for statistics.
  [[nodiscard]] std::optional<TensorId> dy(std::size_t k) const {
    return k < dy_.size() ? std::optional(dy_[k]) : std::nullopt;
  }

  /// Returns the gradient that the gradient rule set for an input, if any.
  [[nodiscard]] std::optional<TensorId> gradient(std::size_t input) const { return gradients_[input]; }

 private:
  Graph& make_graph() {
    graph_.functions = {{"load", {{1, {}}}}, {"test", {{1, {}}}}};
    return graph_;
  }

  double loss(GraphRunner& runner) {
    runner.run(operation_);
    return weighed_sum(runner.floats(operation_.outputs[0]), runner.floats(dy()));
  }

  Graph graph_;
  Builder builder_;
  Operation operation_;
  std::vector<TensorId> dy_;  ///< One per output, except for statistics.
  std::vector<std::optional<TensorId>> gradients_;
};

inline TensorType f32(Shape shape, Layout layout = Layout::kRowMajor) {
  return {DataType::kF32, std::move(shape), layout};
}
inline TensorType image(Shape shape) {
  return f32(std::move(shape), Layout::kChannelsLast);
}

/// Fills `values` with distinct nonzero values, `gap` apart and in random order, so that differences meet no kink.
inline void distinct(std::span<float> values, float gap, std::uint32_t seed) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = gap * (static_cast<float>(i) - static_cast<float>(values.size()) / 2 + 0.25F);
  }
  std::shuffle(values.begin(), values.end(), std::mt19937(seed));
}

}  // namespace poprun::testing
