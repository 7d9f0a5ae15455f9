#include "replica/compiler/techniques/recomputation/stage_memory.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace poprun {
namespace {

bool updates(const Operation& operation, TensorId output) {
  return std::ranges::find(operation.inputs, output) != operation.inputs.end();
}

}  // namespace

StageMemories::StageMemories(const Graph& graph, const MicroBatch& micro_batch, const Region& update,
                             std::vector<std::uint32_t> ipu_of_stage, std::vector<std::int64_t> stash_lengths)
    : graph_(graph),
      micro_batch_(micro_batch),
      update_(update),
      ipu_of_stage_(std::move(ipu_of_stage)),
      stash_lengths_(std::move(stash_lengths)),
      operations_(stash_lengths_.size()),
      made_here_(graph.tensors().size(), false),
      outlives_(graph.tensors().size(), false),
      lives_(2 * graph.tensors().size()) {
  const std::vector<Operation>& operations = micro_batch.operations();
  for (Index i = 0; i < operations.size(); ++i) {
    operations_.at(operations[i].origin.stage).push_back(i);
    for (const TensorId id : operations[i].outputs) {
      if (!updates(operations[i], id)) {
        made_here_[index_of(id)] = true;
      }
    }
  }
  for (const Operation& operation : update.operations) {
    for (const TensorId id : operation.inputs) {
      outlives_[index_of(id)] = true;
    }
  }
}

std::vector<Bytes> StageMemories::variables() const {
  std::vector<Bytes> variables(operations_.size());
  std::set<std::pair<TensorId, std::uint32_t>> placed;  // Tensors with their IPUs.
  const auto count = [&](TensorId id, std::uint32_t stage) {
    if (!made_here_[index_of(id)] && placed.emplace(id, ipu_of_stage_[stage]).second) {
      variables.at(stage) += graph_.tensor(id).type.bytes();
    }
  };
  std::map<TensorId, std::uint32_t> first_stage;
  for (const Operation& operation : micro_batch_.operations()) {
    for (const auto* ids : {&operation.inputs, &operation.outputs}) {
      for (const TensorId id : *ids) {
        first_stage.emplace(id, operation.origin.stage);
        count(id, operation.origin.stage);
      }
    }
  }
  for (const Operation& operation : update_.operations) {
    for (const TensorId id : operation.outputs) {
      if (updates(operation, id)) {  // State counts in the stage of its parameter, the first output.
        const auto parameter = first_stage.find(operation.outputs[0]);
        const std::uint32_t stage = parameter == first_stage.end() ? 0 : parameter->second;
        if (first_stage.emplace(id, stage).second) {
          count(id, stage);
        }
      }
    }
  }
  return variables;
}

std::vector<StageMemory> StageMemories::measure(const ClonePlan& plan, const std::vector<bool>& kept) {
  std::vector<StageMemory> memories;
  for (std::uint32_t stage = 0; stage < operations_.size(); ++stage) {
    walk(stage, plan, kept);
    memories.push_back(memory(stage));
  }
  return memories;
}

void StageMemories::walk(std::uint32_t stage, const ClonePlan& plan, const std::vector<bool>& kept) {
  for (const std::size_t key : touched_) {
    lives_[key] = {};
  }
  touched_.clear();
  now_ = 0;
  in_backward_ = false;
  const std::vector<Operation>& operations = micro_batch_.operations();
  for (const Index i : operations_[stage]) {
    in_backward_ = i >= micro_batch_.backward();
    if (in_backward_) {
      for (const Index original : plan[i - micro_batch_.backward()]) {
        name_operands(operations[original], true, kept);
      }
    }
    name_operands(operations[i], false, kept);
  }
  for (const std::size_t key : touched_) {
    Life& life = lives_[key];
    if (key % 2 == 0 && outlives_[key / 2]) {
      (life.backward.used() ? life.backward : life.forward).last = now_ - 1;
    }
  }
}

void StageMemories::name_operands(const Operation& operation, bool is_clone, const std::vector<bool>& kept) {
  for (const TensorId id : operation.inputs) {
    name(id, in_backward_ && reads_clone(micro_batch_, kept, operation.origin.stage, id));
  }
  for (const TensorId id : operation.outputs) {
    name(id, is_clone);
  }
  ++now_;
}

void StageMemories::name(TensorId tensor, bool is_clone) {
  if (!made_here_[index_of(tensor)]) {
    return;
  }
  const std::size_t key = 2 * std::size_t{index_of(tensor)} + (is_clone ? 1 : 0);
  Life& life = lives_[key];
  if (!life.forward.used() && !life.backward.used()) {
    touched_.push_back(key);
  }
  Span& span = in_backward_ ? life.backward : life.forward;
  span.first = std::min(span.first, now_);
  span.last = now_;
}

std::int64_t StageMemories::stashed_micro_batches(std::uint32_t stage) const {
  const bool is_alone = std::ranges::count(ipu_of_stage_, ipu_of_stage_[stage]) == 1;
  return is_alone && stash_lengths_[stage] == 1 ? 0 : stash_lengths_[stage];
}

StageMemory StageMemories::memory(std::uint32_t stage) const {
  const bool has_stash = stash_lengths_[stage] > 1;
  StageMemory memory;
  std::vector<std::int64_t> change(std::size_t{now_} + 1);
  for (const std::size_t key : touched_) {
    const Life& life = lives_[key];
    const std::int64_t bytes = graph_.tensors()[key / 2].type.bytes().count();
    const auto live = [&](Index first, Index last) {
      change[first] += bytes;
      change[std::size_t{last} + 1] -= bytes;
    };
    const bool crosses = life.forward.used() && life.backward.used();
    memory.stashed += Bytes{crosses ? bytes * stashed_micro_batches(stage) : 0};
    if (crosses && !has_stash) {
      live(life.forward.first, life.backward.last);
      continue;
    }
    for (const Span& span : {life.forward, life.backward}) {
      if (span.used()) {
        live(span.first, span.last);
      }
    }
  }
  std::int64_t now = 0;
  for (const std::int64_t step : change) {
    now += step;
    memory.peak = std::max(memory.peak, Bytes{now});
  }
  return memory;
}

}  // namespace poprun
