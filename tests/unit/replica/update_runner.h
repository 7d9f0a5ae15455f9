#pragma once

#include <string>
#include <vector>

#include "graph_runner.h"
#include "replica/graph/graph.h"
#include "replica/ops/optimizers/optimizer.h"
#include "replica/ops/optimizers/square_sum.h"

namespace poprun::testing {

/// Applies one optimiser to one weight tensor, step after step.
class UpdateRunner {
 public:
  /// The `states` state tensors are zero at first. `scalars` is the number of scalars after the rate.
  UpdateRunner(const std::string& optimizer, const Attributes& attributes, std::vector<float> weights,
               std::size_t states, std::size_t scalars)
      : count_(static_cast<std::int64_t>(weights.size())),
        graph_(make_graph(count_, states, 1 + scalars)),
        runner_(graph_) {
    const Optimizer& rule = *find_optimizer(optimizer);
    std::vector<TensorId> all;
    std::vector<TensorId> updated;
    for (std::uint32_t t = 0; t < 2 + states + 1 + scalars; ++t) {
      all.push_back(TensorId{t});
      std::ranges::fill(runner_.floats(TensorId{t}), 0.0F);
      if (t == 0 || (t >= 2 && t < 2 + states)) {
        updated.push_back(TensorId{t});
      }
    }
    const TensorId squares{static_cast<std::uint32_t>(all.size())};
    const auto rate = static_cast<std::ptrdiff_t>(2 + states);
    if (rule.norms) {
      std::vector<TensorId> apply = all;
      apply.insert(apply.begin() + rate, squares);
      operations_ = {{rule.norms->kind, {all[0], all[1]}, {squares}, {}}, {rule.rule.kind, apply, updated, attributes}};
    } else if (!rule.moments) {
      operations_ = {{rule.rule.kind, all, updated, attributes}};
    } else {
      std::vector<TensorId> moments = all;
      moments.erase(moments.begin() + rate);
      std::vector<TensorId> apply = all;
      apply.erase(apply.begin() + 1);  // The gradient.
      apply.insert(apply.begin() + 1 + static_cast<std::ptrdiff_t>(states), squares);
      operations_ = {{rule.moments->kind, moments, {updated.begin() + 1, updated.end()}, attributes},
                     {rule.rule.kind, apply, {TensorId{0}}, attributes}};
      operations_[0].outputs.push_back(squares);
    }
    std::ranges::copy(weights, runner_.floats(TensorId{0}).begin());
  }

  /// Runs one update. `scalars` are the rate and the scalars after it.
  void step(const std::vector<float>& gradient, const std::vector<float>& scalars) {
    std::ranges::copy(gradient, runner_.floats(TensorId{1}).begin());
    const std::size_t first = graph_.tensors().size() - 1 - scalars.size();
    for (std::size_t k = 0; k < scalars.size(); ++k) {
      runner_.floats(TensorId{static_cast<std::uint32_t>(first + k)})[0] = scalars[k];
    }
    runner_.run(operations_);
  }

  [[nodiscard]] std::span<const float> weights() { return runner_.floats(TensorId{0}); }

  /// Returns the error of the first operator that refuses this use, or the output types of the last operator.
  [[nodiscard]] Result<std::vector<TensorType>> shape() const {
    Result<std::vector<TensorType>> types;
    for (const Operation& operation : operations_) {
      types = find_operator(operation.kind)->shape(signature_of(graph_, operation));
      if (!types) {
        break;
      }
    }
    return types;
  }

 private:
  static Graph make_graph(std::int64_t count, std::size_t states, std::size_t scalars) {
    Graph graph;
    for (std::size_t t = 0; t < 2 + states; ++t) {
      graph.add_tensor({"t" + std::to_string(t), {DataType::kF32, {count}, {}}, Role::kParameter});
    }
    for (std::size_t k = 0; k < scalars; ++k) {
      graph.add_tensor({"s" + std::to_string(k), {DataType::kF32, {}, {}}, Role::kStream});
    }
    graph.add_tensor({"squares", {DataType::kI32, {2, SquareSum::kLimbs}, {}}, Role::kMetric});
    return graph;
  }

  std::int64_t count_;
  Graph graph_;
  GraphRunner runner_;
  std::vector<Operation> operations_;
};

}  // namespace poprun::testing
