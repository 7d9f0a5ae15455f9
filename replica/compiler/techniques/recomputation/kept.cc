#include "replica/compiler/techniques/recomputation/kept.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/pattern.h"
#include "replica/base/text.h"
#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"

namespace poprun {
namespace {

/// For each tensor, the reasons why it cannot be recomputed.
struct Ties {
  std::vector<bool> updated;   ///< It changes later in the step.
  std::vector<bool> reported;  ///< Its value is reported at the step's end.
};

Ties ties_of(const Graph& graph, const std::vector<Operation>& operations) {
  Ties ties{std::vector<bool>(graph.tensors().size()), std::vector<bool>(graph.tensors().size())};
  for (const Operation& operation : operations) {
    for (const TensorId id : operation.outputs) {
      if (std::ranges::find(operation.inputs, id) != operation.inputs.end()) {
        ties.updated[index_of(id)] = true;
      }
    }
    if (operation.kind == kinds::kAccumulateMetrics) {
      for (const TensorId id : operation.inputs) {
        ties.reported[index_of(id)] = true;
      }
    }
  }
  return ties;
}

using Index = MicroBatch::Index;

constexpr std::string_view kCheckpoints = "pipeline.recomputation-checkpoints";
constexpr std::string_view kRecompute = "pipeline.recompute";
constexpr std::size_t kExamples = 3;

template <typename Visit>
void for_each_activation(const MicroBatch& micro_batch, Visit visit) {
  for (Index i = 0; i < micro_batch.backward(); ++i) {
    for (const TensorId id : micro_batch.operations()[i].outputs) {
      if (micro_batch.maker(id) == i) {
        visit(id, micro_batch.operations()[i]);
      }
    }
  }
}

std::int32_t last_layer(const MicroBatch& micro_batch) {
  for (Index i = micro_batch.backward(); i > 0; --i) {
    if (const std::int32_t layer = micro_batch.operations()[i - 1].origin.layer; layer != kNoLayer) {
      return layer;
    }
  }
  return kNoLayer;
}

void keep_layer_inputs(const MicroBatch& micro_batch, std::vector<bool>& kept) {
  for (Index i = 0; i < micro_batch.backward(); ++i) {
    const Operation& reader = micro_batch.operations()[i];
    for (const TensorId id : reader.inputs) {
      if (const Index maker = micro_batch.maker(id); maker != MicroBatch::kNone) {
        const Origin& made = micro_batch.operations()[maker].origin;
        if (made.stage == reader.origin.stage && made.layer != reader.origin.layer) {
          kept[index_of(id)] = true;
        }
      }
    }
  }
}

tl::unexpected<Error> no_match(const Graph& graph, const MicroBatch& micro_batch, std::string_view key,
                               const std::string& text) {
  std::vector<std::string> names;
  for_each_activation(micro_batch,
                      [&](TensorId id, const Operation& /*maker*/) { names.push_back(graph.tensor(id).name); });
  const std::string close = nearest(text, names);
  names.resize(std::min(names.size(), kExamples));
  return fail(ErrorCode::kUsage,
              fmt::format("{} = {}: no recomputable activation in the model has a matching name; {}", key, text,
                          close.empty() ? fmt::format("available: {}, ...", fmt::join(names, ", "))
                                        : fmt::format("did you mean {}?", close)));
}

Result<std::vector<TensorId>> matches(const Graph& graph, const MicroBatch& micro_batch, std::string_view key,
                                      const std::string& text) {
  std::vector<TensorId> found;
  if (text.empty()) {
    return found;
  }
  const Result<Pattern> pattern = Pattern::parse(text);
  if (!pattern) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} = {}: not a valid regular expression: {}", key, text, pattern.error().message));
  }
  for_each_activation(micro_batch, [&](TensorId id, const Operation& /*maker*/) {
    if (pattern->finds(graph.tensor(id).name)) {
      found.push_back(id);
    }
  });
  if (found.empty()) {
    return no_match(graph, micro_batch, key, text);
  }
  return found;
}

using Index = MicroBatch::Index;

/// Returns an operation's clone, and adds its outputs to the graph and to `clone_of`.
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

MicroBatch::MicroBatch(const Graph& graph, Place place)
    : operations_(graph.at(place).operations), makers_(graph.tensors().size(), kNone) {
  const auto first =
      std::ranges::find(operations_, Direction::kBackward, [](const Operation& o) { return o.origin.direction; });
  backward_ = static_cast<Index>(first - operations_.begin());
  const Ties ties = ties_of(graph, operations_);
  const auto is_updated = [&ties](TensorId id) { return ties.updated[index_of(id)]; };
  const auto is_reported = [&ties](TensorId id) { return ties.reported[index_of(id)]; };
  for (Index i = 0; i < backward_; ++i) {
    const Operation& operation = operations_[i];
    last_stage_ = std::max(last_stage_, operation.origin.stage);
    if (find_operator(operation.kind) != nullptr && std::ranges::none_of(operation.inputs, is_updated) &&
        std::ranges::none_of(operation.outputs, is_updated) && std::ranges::none_of(operation.outputs, is_reported)) {
      for (const TensorId id : operation.outputs) {
        makers_[index_of(id)] = i;
      }
    }
  }
}

std::vector<bool> kept_by(Recomputation mode, const MicroBatch& micro_batch, std::size_t tensor_count) {
  POPRUN_CHECK(mode != Recomputation::kStandard);
  std::vector<bool> kept(tensor_count, true);
  if (mode == Recomputation::kNone) {
    return kept;
  }
  const std::int32_t last = last_layer(micro_batch);
  for_each_activation(micro_batch, [&](TensorId id, const Operation& maker) {
    const bool in_last_stage = maker.origin.stage == micro_batch.last_stage();
    kept[index_of(id)] = (mode == Recomputation::kPipeline && in_last_stage) ||
                         (mode == Recomputation::kLayer && in_last_stage && maker.origin.layer == last);
  });
  if (mode == Recomputation::kLayer) {
    keep_layer_inputs(micro_batch, kept);
  }
  return kept;
}

void ChosenByName::apply_to(std::vector<bool>& kept_tensors) const {
  for (const TensorId id : kept) {
    kept_tensors[index_of(id)] = true;
  }
  for (const TensorId id : recomputed) {
    kept_tensors[index_of(id)] = false;
  }
}

Result<ChosenByName> choose_by_name(const Graph& graph, const MicroBatch& micro_batch,
                                    const RecomputationOptions& options) {
  ChosenByName chosen;
  POPRUN_ASSIGN(chosen.kept, matches(graph, micro_batch, kCheckpoints, options.checkpoints));
  POPRUN_ASSIGN(chosen.recomputed, matches(graph, micro_batch, kRecompute, options.recompute));
  const std::set<TensorId> recomputed(chosen.recomputed.begin(), chosen.recomputed.end());
  const auto both = std::ranges::find_if(chosen.kept, [&recomputed](TensorId id) { return recomputed.contains(id); });
  if (both != chosen.kept.end()) {
    return fail(ErrorCode::kUsage, fmt::format("'{}' matches both {} and {}; it must match only one of them",
                                               graph.tensor(*both).name, kCheckpoints, kRecompute));
  }
  return chosen;
}

bool reads_clone(const MicroBatch& micro_batch, const std::vector<bool>& kept, std::uint32_t stage, TensorId tensor) {
  const Index maker = micro_batch.maker(tensor);
  return maker != MicroBatch::kNone && !kept[index_of(tensor)] && micro_batch.operations()[maker].origin.stage == stage;
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

void insert_clones(Graph& graph, Place place, const ClonePlan& plan, const std::vector<bool>& kept) {
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
