#include "replica/compiler/recomputation/micro_batch.h"

#include <algorithm>

#include "replica/ops/operator.h"

namespace poprun {
namespace {

/// By tensor: true where it has another value later in the step, or is reported at its end.
std::vector<bool> tied_to_one_run(const Graph& graph, const std::vector<Operation>& operations) {
  std::vector<bool> tied(graph.tensors().size(), false);
  for (const Operation& operation : operations) {
    for (const TensorId id : operation.outputs) {
      if (std::ranges::find(operation.inputs, id) != operation.inputs.end()) {
        tied[index_of(id)] = true;
      }
    }
    if (operation.kind == "accumulate_metrics") {
      for (const TensorId id : operation.inputs) {
        tied[index_of(id)] = true;
      }
    }
  }
  return tied;
}

}  // namespace

MicroBatch::MicroBatch(const Graph& graph, Place place)
    : operations_(graph.at(place).operations), makers_(graph.tensors().size(), kNone) {
  const auto first = std::ranges::find(operations_, Direction::kBackward,
                                       [](const Operation& o) { return o.origin.direction; });
  backward_ = static_cast<Index>(first - operations_.begin());
  const std::vector<bool> tied = tied_to_one_run(graph, operations_);
  const auto is_tied = [&tied](TensorId id) { return tied[index_of(id)]; };
  for (Index i = 0; i < backward_; ++i) {
    const Operation& operation = operations_[i];
    last_stage_ = std::max(last_stage_, operation.origin.stage);
    if (find_operator(operation.kind) != nullptr &&
        std::ranges::none_of(operation.inputs, is_tied) &&
        std::ranges::none_of(operation.outputs, is_tied)) {
      for (const TensorId id : operation.outputs) {
        makers_[index_of(id)] = i;
      }
    }
  }
}

}  // namespace poprun
