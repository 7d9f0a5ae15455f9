#include "replica/compiler/recomputation/checkpoints.h"

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/nearest.h"

namespace poprun {
namespace {

using Index = MicroBatch::Index;

constexpr std::string_view kCheckpoints = "pipeline.recomputation-checkpoints";
constexpr std::string_view kRecompute = "pipeline.recompute";
constexpr std::size_t kExamples = 3;

/// Calls visit(tensor, the operation that makes it) for every activation that can be recomputed.
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

/// The layer that the forward pass ends in.
std::int32_t last_layer(const MicroBatch& micro_batch) {
  for (Index i = micro_batch.backward(); i > 0; --i) {
    if (const std::int32_t layer = micro_batch.operations()[i - 1].origin.layer;
        layer != kNoLayer) {
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

tl::unexpected<Error> no_match(const Graph& graph, const MicroBatch& micro_batch,
                               std::string_view key, const std::string& text) {
  std::vector<std::string> names;
  for_each_activation(micro_batch, [&](TensorId id, const Operation& /*maker*/) {
    names.push_back(graph.tensor(id).name);
  });
  const std::string close = nearest(text, names);
  names.resize(std::min(names.size(), kExamples));
  return fail(ErrorCode::kUsage,
              fmt::format("{} = {}: no activation of the model that can be recomputed has such a "
                          "name; {}",
                          key, text,
                          close.empty() ? fmt::format("there are {} ...", fmt::join(names, ", "))
                                        : fmt::format("did you mean {}?", close)));
}

/// The activations whose names `text` matches.
Result<std::vector<TensorId>> matches(const Graph& graph, const MicroBatch& micro_batch,
                                      std::string_view key, const std::string& text) {
  std::vector<TensorId> found;
  if (text.empty()) {
    return found;
  }
  try {
    const std::regex pattern(text);
    for_each_activation(micro_batch, [&](TensorId id, const Operation& /*maker*/) {
      if (std::regex_search(graph.tensor(id).name, pattern)) {
        found.push_back(id);
      }
    });
  } catch (const std::regex_error& error) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} = {}: not a regular expression: {}", key, text, error.what()));
  }
  if (found.empty()) {
    return no_match(graph, micro_batch, key, text);
  }
  return found;
}

}  // namespace

std::vector<bool> kept_by(Recomputation mode, const MicroBatch& micro_batch,
                          std::size_t tensor_count) {
  POPRUN_CHECK(mode != Recomputation::kStandard);
  std::vector<bool> kept(tensor_count, true);
  if (mode == Recomputation::kNone) {
    return kept;
  }
  const std::int32_t last = last_layer(micro_batch);
  for_each_activation(micro_batch, [&](TensorId id, const Operation& maker) {
    const bool in_last_stage = maker.origin.stage == micro_batch.last_stage();
    kept[index_of(id)] =
        (mode == Recomputation::kPipeline && in_last_stage) ||
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
  const auto both = std::ranges::find_if(
      chosen.kept, [&recomputed](TensorId id) { return recomputed.contains(id); });
  if (both != chosen.kept.end()) {
    return fail(ErrorCode::kUsage,
                fmt::format("'{}' matches both {} and {}; it can be kept or recomputed, not both",
                            graph.tensor(*both).name, kCheckpoints, kRecompute));
  }
  return chosen;
}

}  // namespace poprun
