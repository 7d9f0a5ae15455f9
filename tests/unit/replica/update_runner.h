#pragma once

#include <string>
#include <vector>

#include "graph_runner.h"
#include "replica/graph/graph.h"

namespace poprun::testing {

/// Applies one update operator to one weight tensor, step after step.
class UpdateRunner {
 public:
  /// `states` state tensors, zero at first. `scalars`: number of scalars after the rate.
  UpdateRunner(const std::string& kind, const Attributes& attributes, std::vector<float> weights,
               std::size_t states, std::size_t scalars)
      : count_(static_cast<std::int64_t>(weights.size())),
        graph_(make_graph(count_, states, 1 + scalars)),
        runner_(graph_) {
    operation_.kind = kind;
    operation_.attributes = attributes;
    for (std::uint32_t t = 0; t < graph_.tensors().size(); ++t) {
      operation_.inputs.push_back(TensorId{t});
      std::ranges::fill(runner_.floats(TensorId{t}), 0.0F);
      if (t == 0 || (t >= 2 && t < 2 + states)) {
        operation_.outputs.push_back(TensorId{t});
      }
    }
    std::ranges::copy(weights, runner_.floats(TensorId{0}).begin());
  }

  /// One update. `scalars`: the rate and the scalars after it.
  void step(const std::vector<float>& gradient, const std::vector<float>& scalars) {
    std::ranges::copy(gradient, runner_.floats(TensorId{1}).begin());
    const std::size_t first = graph_.tensors().size() - scalars.size();
    for (std::size_t k = 0; k < scalars.size(); ++k) {
      runner_.floats(TensorId{static_cast<std::uint32_t>(first + k)})[0] = scalars[k];
    }
    runner_.run(operation_);
  }

  [[nodiscard]] std::span<const float> weights() { return runner_.floats(TensorId{0}); }

  /// The shape face's verdict on this use.
  [[nodiscard]] Result<std::vector<TensorType>> shape() const {
    Signature signature{{}, {}, operation_.attributes};
    for (const Tensor& tensor : graph_.tensors()) {
      signature.inputs.push_back(tensor.type);
    }
    return find_operator(operation_.kind)->shape(signature);
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
    return graph;
  }

  std::int64_t count_;
  Graph graph_;
  GraphRunner runner_;
  Operation operation_;
};

}  // namespace poprun::testing
