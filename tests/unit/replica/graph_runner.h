#pragma once

#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "replica/graph/graph.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/half/half_kernel.h"

namespace poprun::testing {

/// Runs operations with their kernels and each tensor in a separate buffer, as a plain program without plan, arena or
/// engine.
class GraphRunner {
 public:
  explicit GraphRunner(const Graph& graph) : graph_(graph), buffers_(graph.tensors().size()) {
    for (std::size_t t = 0; t < buffers_.size(); ++t) {
      const auto bytes = static_cast<std::size_t>(graph.tensors()[t].type.bytes().count());
      buffers_[t].resize(bytes / sizeof(Line) + 1);
    }
  }

  [[nodiscard]] std::byte* bytes(TensorId id) { return reinterpret_cast<std::byte*>(buffers_.at(index_of(id)).data()); }
  [[nodiscard]] std::span<float> floats(TensorId id) {
    return {reinterpret_cast<float*>(bytes(id)), static_cast<std::size_t>(graph_.tensor(id).type.elements())};
  }

  void run(const Operation& operation) {
    const Operator* op = find_operator(operation.kind);
    ASSERT_NE(op, nullptr) << operation.kind;
    Signature signature{{}, {}, operation.attributes};
    Operands operands;
    for (const TensorId id : operation.inputs) {
      signature.inputs.push_back(graph_.tensor(id).type);
      operands.inputs.push_back(bytes(id));
    }
    for (const TensorId id : operation.outputs) {
      signature.outputs.push_back(graph_.tensor(id).type);
      operands.outputs.push_back(bytes(id));
    }
    const auto kernel = prepare_kernel(*op, signature);
    std::vector<std::max_align_t> scratch(
        static_cast<std::size_t>(kernel->scratch().count()) / sizeof(std::max_align_t) + 8);
    void* aligned = scratch.data();
    std::size_t space = scratch.size() * sizeof(std::max_align_t);
    std::align(64, static_cast<std::size_t>(kernel->scratch().count()), aligned, space);
    operands.scratch = static_cast<std::byte*>(aligned);
    operands.moment = &moment;
    kernel->run(operands);
  }

  Moment moment;  ///< The execution context of the next run.

  void run(const std::vector<Operation>& operations) {
    for (const Operation& operation : operations) {
      run(operation);
    }
  }

 private:
  /// Tensors are at multiples of 64 bytes, as in a plan.
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes{};
  };

  const Graph& graph_;
  std::vector<std::vector<Line>> buffers_;
};

}  // namespace poprun::testing
