#include "replica/compiler/recomputation/notes.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/compiler/recomputation/checkpoints.h"
#include "replica/compiler/recomputation/clones.h"

namespace poprun {
namespace {

/// Whether a mode can recompute anything.
bool recomputes(Recomputation mode, const MicroBatch& micro_batch, const ChosenByName& chosen,
                std::size_t tensor_count) {
  // kStandard may recompute whatever kAll does.
  const Recomputation most = mode == Recomputation::kStandard ? Recomputation::kAll : mode;
  std::vector<bool> kept = kept_by(most, micro_batch, tensor_count);
  chosen.apply_to(kept);
  return std::ranges::any_of(plan_clones(micro_batch, kept),
                             [](const auto& clones) { return !clones.empty(); });
}

std::set<std::uint32_t> stages_of(const ClonePlan& plan, const MicroBatch& micro_batch) {
  std::set<std::uint32_t> stages;
  for (const std::vector<MicroBatch::Index>& clones : plan) {
    for (const MicroBatch::Index clone : clones) {
      stages.insert(micro_batch.operations()[clone].origin.stage);
    }
  }
  return stages;
}

/// "the only stage", "stage 3", "stages 0, 1".
std::string stages_text(const std::vector<std::uint32_t>& stages, std::uint32_t last) {
  return last == 0
             ? "the only stage"
             : fmt::format("stage{} {}", stages.size() == 1 ? "" : "s", fmt::join(stages, ", "));
}

}  // namespace

std::optional<std::string> note_of_no_effect(const RecomputationOptions& asked,
                                             const MicroBatch& micro_batch,
                                             const ChosenByName& chosen, std::size_t tensor_count) {
  constexpr std::string_view kAtOnce = "whose backward pass follows its forward pass at once";
  const std::string what =
      fmt::format("pipeline.recomputation = {} has no effect", name_of(asked.mode));
  if (asked.mode == Recomputation::kNone) {
    return "pipeline.recomputation-checkpoints has no effect without recomputation: every "
           "activation is kept";
  }
  if (recomputes(asked.mode, micro_batch, {}, tensor_count) &&
      !recomputes(asked.mode, micro_batch, chosen, tensor_count)) {
    return fmt::format(
        "{}: pipeline.recomputation-checkpoints = {} keeps every activation that it would "
        "recompute",
        what, asked.checkpoints);
  }
  if (asked.mode == Recomputation::kStandard) {
    return std::nullopt;
  }
  if (asked.mode == Recomputation::kPipeline && micro_batch.last_stage() == 0) {
    return fmt::format("{}: the model is a single stage, {}", what, kAtOnce);
  }
  if (asked.mode == Recomputation::kLayer && micro_batch.last_stage() == 0) {
    return fmt::format("{}: the backward pass reads only inputs of layers and the last layer, {}",
                       what, kAtOnce);
  }
  return what + ": the backward pass reads nothing that can be recomputed";
}

std::optional<std::string> note_of_vain_stages(Recomputation mode, const MicroBatch& micro_batch,
                                               StageMemories& memories, const ClonePlan& plan,
                                               const std::vector<bool>& kept) {
  const std::vector<StageMemory> with = memories.measure(plan, kept);
  const std::vector<StageMemory> without =
      memories.measure(ClonePlan(plan.size()), std::vector<bool>(kept.size(), true));
  const std::set<std::uint32_t> recomputing = stages_of(plan, micro_batch);
  std::vector<std::uint32_t> vain;
  for (const std::uint32_t stage : recomputing) {
    if (with[stage].stashed + with[stage].peak >= without[stage].stashed + without[stage].peak) {
      vain.push_back(stage);
    }
  }
  if (vain.empty()) {
    return std::nullopt;
  }
  const bool only_last = vain == std::vector{micro_batch.last_stage()} && recomputing.size() > 1;
  return fmt::format("pipeline.recomputation = {} takes time and saves no memory in {}{}",
                     name_of(mode), stages_text(vain, micro_batch.last_stage()),
                     only_last && mode == Recomputation::kAll
                         ? "; recomputation = pipeline skips that stage"
                         : "");
}

}  // namespace poprun
