#include "replica/compiler/recomputation/micro_batch.h"

#include <algorithm>

#include "replica/ops/face/operator.h"

namespace poprun {
namespace {

/// By tensor.
struct Ties {
  std::vector<bool> updated;   ///< It has another value later in the step.
  std::vector<bool> reported;  ///< At the step's end.
};

Ties ties_of(const Graph& graph, const std::vector<Operation>& operations) {
  Ties ties{std::vector<bool>(graph.tensors().size()), std::vector<bool>(graph.tensors().size())};
  for (const Operation& operation : operations) {
    for (const TensorId id : operation.outputs) {
      if (std::ranges::find(operation.inputs, id) != operation.inputs.end()) {
        ties.updated[index_of(id)] = true;
      }
    }
    if (operation.kind == "accumulate_metrics") {
      for (const TensorId id : operation.inputs) {
        ties.reported[index_of(id)] = true;
      }
    }
  }
  return ties;
}

}  // namespace

MicroBatch::MicroBatch(const Graph& graph, Place place)
    : operations_(graph.at(place).operations), makers_(graph.tensors().size(), kNone) {
  const auto first = std::ranges::find(operations_, Direction::kBackward,
                                       [](const Operation& o) { return o.origin.direction; });
  backward_ = static_cast<Index>(first - operations_.begin());
  const Ties ties = ties_of(graph, operations_);
  const auto is_updated = [&ties](TensorId id) { return ties.updated[index_of(id)]; };
  const auto is_reported = [&ties](TensorId id) { return ties.reported[index_of(id)]; };
  for (Index i = 0; i < backward_; ++i) {
    const Operation& operation = operations_[i];
    last_stage_ = std::max(last_stage_, operation.origin.stage);
    if (find_operator(operation.kind) != nullptr &&
        std::ranges::none_of(operation.inputs, is_updated) &&
        std::ranges::none_of(operation.outputs, is_updated) &&
        std::ranges::none_of(operation.outputs, is_reported)) {
      for (const TensorId id : operation.outputs) {
        makers_[index_of(id)] = i;
      }
    }
  }
}

}  // namespace poprun
