#include "replica/compiler/recomputation/clones.h"

#include <algorithm>
#include <map>
#include <utility>

namespace poprun {
namespace {

using Index = MicroBatch::Index;

/// Adds an operation's clone and its outputs, which readers find in `clone_of`.
Operation clone(Graph& graph, const Operation& original, std::map<TensorId, TensorId>& clone_of) {
  Operation copy = original;
  copy.origin.direction = Direction::kRecomputed;
  for (TensorId& output : copy.outputs) {
    Tensor tensor = graph.tensor(output);
    tensor.name += ".recomputed";
    tensor.copy_of = output;
    output = clone_of[output] = graph.add_tensor(std::move(tensor));
  }
  return copy;
}

}  // namespace

bool reads_clone(const MicroBatch& micro_batch, const std::vector<bool>& kept, std::uint32_t stage,
                 TensorId tensor) {
  const Index maker = micro_batch.maker(tensor);
  return maker != MicroBatch::kNone && !kept[index_of(tensor)] &&
         micro_batch.operations()[maker].origin.stage == stage;
}

ClonePlan plan_clones(const MicroBatch& micro_batch, const std::vector<bool>& kept) {
  const std::vector<Operation>& operations = micro_batch.operations();
  std::vector<bool> cloned(micro_batch.backward(), false);
  ClonePlan plan(operations.size() - micro_batch.backward());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    std::vector<const Operation*> readers = {&operations[micro_batch.backward() + i]};
    while (!readers.empty()) {
      const Operation& reader = *readers.back();
      readers.pop_back();
      for (const TensorId id : reader.inputs) {
        const Index maker = micro_batch.maker(id);
        if (reads_clone(micro_batch, kept, reader.origin.stage, id) && !cloned[maker]) {
          cloned[maker] = true;
          plan[i].push_back(maker);
          readers.push_back(&operations[maker]);
        }
      }
    }
    std::ranges::sort(plan[i]);
  }
  return plan;
}

void insert_clones(Graph& graph, Place place, const ClonePlan& plan,
                   const std::vector<bool>& kept) {
  const MicroBatch micro_batch(graph, place);
  const std::vector<Operation>& operations = micro_batch.operations();
  std::vector<Operation> rewritten(operations.begin(), operations.begin() + micro_batch.backward());
  std::map<TensorId, TensorId> clone_of;
  const auto append = [&](Operation operation) {
    for (TensorId& input : operation.inputs) {
      if (reads_clone(micro_batch, kept, operation.origin.stage, input)) {
        input = clone_of.at(input);
      }
    }
    rewritten.push_back(std::move(operation));
  };
  for (std::size_t i = 0; i < plan.size(); ++i) {
    for (const Index original : plan[i]) {
      append(clone(graph, operations[original], clone_of));
    }
    append(operations[micro_batch.backward() + i]);
  }
  graph.at(place).operations = std::move(rewritten);
}

}  // namespace poprun
