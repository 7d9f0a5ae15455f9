#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"
#include "replica/compiler/job/pass.h"
#include "replica/compiler/techniques/pipeline/pipeline.h"
#include "replica/compiler/techniques/recomputation/kept.h"
#include "replica/compiler/techniques/recomputation/stage_memory.h"
#include "replica/compiler/techniques/recomputation/standard.h"
#include "replica/compiler/tiles/operation_time.h"
#include "replica/compiler/tiles/plans.h"
#include "replica/machine/machine.h"

namespace poprun::passes::recomputation {
namespace {

bool recomputes(Recomputation mode, const MicroBatch& micro_batch, const ChosenByName& chosen,
                std::size_t tensor_count) {
  // kStandard may recompute everything that kAll recomputes.
  const Recomputation most = mode == Recomputation::kStandard ? Recomputation::kAll : mode;
  std::vector<bool> kept = kept_by(most, micro_batch, tensor_count);
  chosen.apply_to(kept);
  return std::ranges::any_of(plan_clones(micro_batch, kept), [](const auto& clones) { return !clones.empty(); });
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

/// Returns "the only stage", "stage 3" or "stages 0, 1".
std::string stages_text(const std::vector<std::uint32_t>& stages, std::uint32_t last) {
  return last == 0 ? "the only stage"
                   : fmt::format("stage{} {}", stages.size() == 1 ? "" : "s", fmt::join(stages, ", "));
}

/// Returns the text of a note on why a job recomputes nothing; no text if kStandard found recomputation unnecessary.
std::optional<std::string> text_of_no_effect(const RecomputationOptions& asked, const MicroBatch& micro_batch,
                                             const ChosenByName& chosen, std::size_t tensor_count) {
  constexpr std::string_view kAtOnce = "whose backward pass immediately follows its forward pass";
  const std::string what = fmt::format("pipeline.recomputation = {} has no effect", word_of(asked.mode));
  if (asked.mode == Recomputation::kNone) {
    return "pipeline.recomputation-checkpoints has no effect without recomputation: every activation is kept";
  }
  if (recomputes(asked.mode, micro_batch, {}, tensor_count) &&
      !recomputes(asked.mode, micro_batch, chosen, tensor_count)) {
    return fmt::format("{}: pipeline.recomputation-checkpoints = {} keeps every activation that would be recomputed",
                       what, asked.checkpoints);
  }
  if (asked.mode == Recomputation::kStandard) {
    return std::nullopt;
  }
  if (asked.mode == Recomputation::kPipeline && micro_batch.last_stage() == 0) {
    return fmt::format("{}: the model is a single stage, {}", what, kAtOnce);
  }
  if (asked.mode == Recomputation::kLayer && micro_batch.last_stage() == 0) {
    return fmt::format("{}: the backward pass reads only inputs of layers and activations of the last layer, {}", what,
                       kAtOnce);
  }
  return what + ": the backward pass reads nothing that can be recomputed";
}

/// Returns a note on the stages, if any, in which recomputation takes time but saves no memory, such as those whose
/// backward pass follows immediately. `memories` must belong to the same micro-batch. Cost: linear.
std::optional<std::string> text_of_vain_stages(Recomputation mode, const MicroBatch& micro_batch,
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
  return fmt::format(
      "pipeline.recomputation = {} takes time but saves no memory in {}{}", word_of(mode),
      stages_text(vain, micro_batch.last_stage()),
      only_last && mode == Recomputation::kAll ? "; pipeline.recomputation = pipeline leaves that stage out" : "");
}

constexpr std::string_view kName = "recomputation";

bool applies(const CompileOptions& options) {
  const PipelineOptions& pipeline = options.pipeline;
  return in_training(options) && (pipeline.recomputation != Recomputation::kNone ||
                                  !pipeline.recomputation_checkpoints.empty() || !pipeline.recompute.empty());
}

RecomputationOptions asked_for(const PipelineOptions& pipeline, std::size_t stages) {
  return {.mode = recomputation_of(pipeline, stages),
          .checkpoints = pipeline.recomputation_checkpoints,
          .recompute = pipeline.recompute,
          .memory = pipeline.recomputation_memory};
}

std::vector<std::int64_t> stash_lengths_of(const CompileOptions& options, const Job& job) {
  const Schedule schedule = schedule_of(options.pipeline);
  const auto stages = static_cast<std::uint32_t>(job.ipu_of_stage.size());
  std::vector<std::int64_t> lengths;
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    lengths.push_back(stash_length(schedule, stages, stage, options.gradient_accumulation));
  }
  return lengths;
}

StandardGoal goal_of(const CompileOptions& options, const Job& job, double proportion) {
  StandardGoal goal{.ipu_of_stage = job.ipu_of_stage,
                    .stash_lengths = stash_lengths_of(options, job),
                    .work = {},
                    .capacity = options.device.compute_capacity(),
                    .proportion = proportion};
  const MicroBatch micro_batch(job.graph, job.training->micro_batch);
  for (MicroBatch::Index i = 0; i < micro_batch.backward(); ++i) {
    const Operation& operation = micro_batch.operations()[i];
    const auto planned = plan_operation(job.graph, operation, options.device);
    const DeviceTime time = cost_of_operation(options.device, {options.replicas, options.ipus_per_replica}, job.graph,
                                              operation, planned ? &*planned : nullptr);
    goal.work.push_back(time.total().count());
  }
  return goal;
}

Status run(const CompileOptions& options, Job& job) {
  const RecomputationOptions asked = asked_for(options.pipeline, job.ipu_of_stage.size());
  const Place place = job.training->micro_batch;
  const MicroBatch micro_batch(job.graph, place);
  POPRUN_ASSIGN(const ChosenByName chosen, choose_by_name(job.graph, micro_batch, asked));
  std::vector<bool> kept;
  if (asked.mode == Recomputation::kStandard) {
    const StandardGoal goal = goal_of(options, job, asked.memory);
    const StandardChoice choice =
        choose_standard(job.graph, micro_batch, job.graph.at(job.training->update), chosen, goal);
    job.notes.push_back(note_of(choice, goal));
    kept = choice.kept;
  } else {
    kept = kept_by(asked.mode, micro_batch, job.graph.tensors().size());
    chosen.apply_to(kept);
  }
  const ClonePlan plan = plan_clones(micro_batch, kept);
  if (std::ranges::none_of(plan, [](const auto& clones) { return !clones.empty(); })) {
    const bool is_asked_for = options.pipeline.recomputation.has_value() || !asked.checkpoints.empty();
    if (auto text = text_of_no_effect(asked, micro_batch, chosen, kept.size()); text && is_asked_for) {
      job.notes.push_back({"option.no-effect", *std::move(text), {{"option", "pipeline.recomputation"}}});
    }
    return {};
  }
  const bool is_by_rule = asked.mode != Recomputation::kStandard && asked.mode != Recomputation::kNone;
  if (is_by_rule && options.pipeline.recomputation.has_value()) {
    StageMemories memories(job.graph, micro_batch, job.graph.at(job.training->update), job.ipu_of_stage,
                           stash_lengths_of(options, job));
    if (auto text = text_of_vain_stages(asked.mode, micro_batch, memories, plan, kept)) {
      job.notes.push_back({"recomputation.vain", *std::move(text)});
    }
  }
  insert_clones(job.graph, place, plan, kept);
  return {};
}

bool equal_but_inputs(const Operation& a, const Operation& b) {
  return a.kind == b.kind && a.outputs == b.outputs && a.attributes == b.attributes && a.origin == b.origin;
}

bool equal(const Operation& a, const Operation& b) {
  return equal_but_inputs(a, b) && a.inputs == b.inputs;
}

/// Checks the pass. `kept`: whether each tensor's own stage may read it in the backward pass without recomputation.
class Verifier {
 public:
  Verifier(const Job& before, const Job& after, const MicroBatch& micro_batch, std::vector<bool> kept)
      : before_(before.graph),
        after_(after.graph),
        place_(before.training->micro_batch),
        micro_batch_(micro_batch),
        kept_(std::move(kept)) {}

  Status run() {
    POPRUN_TRY(nothing_else_changed());
    const std::vector<Operation>& was = before_.at(place_).operations;
    auto original = was.begin();
    bool backward = false;
    for (const Operation& operation : after_.at(place_).operations) {
      if (operation.origin.direction == Direction::kRecomputed) {
        POPRUN_TRY(check_clone(operation));
        continue;
      }
      if (original == was.end() || !equal_but_inputs(operation, *original)) {
        return bug(operation, "is not the same operation as before");
      }
      backward = backward || operation.origin.direction == Direction::kBackward;
      POPRUN_TRY(check_inputs(operation, *original, backward));
      ++original;
    }
    return original == was.end() ? Status{} : bug(*original, "is missing");
  }

 private:
  [[nodiscard]] tl::unexpected<Error> bug(const Operation& operation, std::string_view what) const {
    const std::string name = operation.outputs.empty() ? "" : " '" + after_.tensor(operation.outputs[0]).name + "'";
    return fail(ErrorCode::kBug, fmt::format("pass {}: {}{} {}", kName, operation.kind, name, what));
  }

  [[nodiscard]] Status nothing_else_changed() const {
    for (std::size_t t = 0; t < before_.tensors().size(); ++t) {
      const Tensor& was = before_.tensors()[t];
      const Tensor& is = after_.tensors()[t];
      if (was.name != is.name || was.type != is.type || was.role != is.role || was.ipu != is.ipu) {
        return pass_bug(kName, before_, TensorId{static_cast<std::uint32_t>(t)},
                        "no longer has the same name, type, role and IPU");
      }
    }
    for (std::size_t f = 0; f < before_.functions.size(); ++f) {
      for (std::size_t r = 0; r < before_.functions[f].regions.size(); ++r) {
        const Region& was = before_.at({f, r});
        const Region& is = after_.at({f, r});
        const bool is_rewritten = f == place_.function && r == place_.region;
        if (was.repeat != is.repeat || (!is_rewritten && !std::ranges::equal(was.operations, is.operations, equal))) {
          return fail(ErrorCode::kBug, fmt::format("pass {}: changes function {}", kName, before_.functions[f].name));
        }
      }
    }
    return {};
  }

  [[nodiscard]] const Operation* original_of(TensorId output) const {
    const std::optional<TensorId> original = after_.tensor(output).copy_of;
    if (!original || index_of(output) < before_.tensors().size() || index_of(*original) >= before_.tensors().size()) {
      return nullptr;
    }
    const auto writes = [id = *original](const Operation& operation) {
      return std::ranges::find(operation.outputs, id) != operation.outputs.end();
    };
    const auto& operations = micro_batch_.operations();
    const auto found = std::ranges::find_if(operations, writes);
    return found == operations.end() ? nullptr : &*found;
  }

  Status check_clone(const Operation& clone) {
    const Operation* original = clone.outputs.empty() ? nullptr : original_of(clone.outputs[0]);
    Origin origin = clone.origin;
    origin.direction = Direction::kForward;
    if (original == nullptr || clone.kind != original->kind || clone.attributes != original->attributes ||
        origin != original->origin || clone.outputs.size() != original->outputs.size()) {
      return bug(clone, "is not a clone of a forward operation");
    }
    if (maker(original->outputs[0]) != original) {
      return bug(clone, "is the clone of an operation that must run once");
    }
    if (!cloned_.insert(original).second) {
      return bug(clone, "is a second clone");
    }
    POPRUN_TRY(check_inputs(clone, *original, true));
    for (std::size_t k = 0; k < clone.outputs.size(); ++k) {
      const TensorId was = original->outputs[k];
      if (index_of(clone.outputs[k]) < before_.tensors().size() ||
          after_.tensor(clone.outputs[k]).type != before_.tensor(was).type ||
          !clone_of_.emplace(was, clone.outputs[k]).second) {
        return bug(clone, "does not write tensors of its own with the original's types");
      }
    }
    return {};
  }

  /// Checks that every input is the original's or, in the backward pass, its clone. An input that the operation's own
  /// stage computes and does not keep must be the clone.
  Status check_inputs(const Operation& operation, const Operation& original, bool backward) const {
    if (operation.inputs.size() != original.inputs.size()) {
      return bug(operation, "has a different number of inputs");
    }
    for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
      const TensorId was = original.inputs[k];
      const TensorId is = operation.inputs[k];
      const auto clone = clone_of_.find(was);
      const bool reads_clone = backward && clone != clone_of_.end() && clone->second == is;
      if (is != was && !reads_clone) {
        return bug(operation,
                   fmt::format("reads '{}' instead of '{}'", after_.tensor(is).name, after_.tensor(was).name));
      }
      if (is == was && backward && must_be_recomputed(was, operation.origin.stage)) {
        return bug(operation, fmt::format("reads '{}', which is neither kept nor recomputed", after_.tensor(is).name));
      }
    }
    return {};
  }

  [[nodiscard]] const Operation* maker(TensorId id) const {
    const MicroBatch::Index index = micro_batch_.maker(id);
    return index == MicroBatch::kNone ? nullptr : &micro_batch_.operations()[index];
  }

  [[nodiscard]] bool must_be_recomputed(TensorId id, std::uint32_t stage) const {
    const Operation* made_by = index_of(id) < kept_.size() ? maker(id) : nullptr;
    return made_by != nullptr && made_by->origin.stage == stage && !kept_[index_of(id)];
  }

  const Graph& before_;
  const Graph& after_;
  Place place_;
  const MicroBatch& micro_batch_;
  std::vector<bool> kept_;
  std::set<const Operation*> cloned_;
  std::map<TensorId, TensorId> clone_of_;
};

/// Checks that the forward pass and everything outside the micro-batch are unchanged. Every clone must repeat, once and
/// from the same values, a forward operation that can run again (MicroBatch). The backward pass may read only clones
/// and kept tensors (`kept_by`, `choose_by_name`).
Status verify(const CompileOptions& options, const Job& before, const Job& after) {
  const RecomputationOptions asked = asked_for(options.pipeline, before.ipu_of_stage.size());
  const MicroBatch micro_batch(before.graph, before.training->micro_batch);
  POPRUN_ASSIGN(const ChosenByName chosen, choose_by_name(before.graph, micro_batch, asked));
  // "standard" is free to choose what it recomputes.
  const Recomputation rule = asked.mode == Recomputation::kStandard ? Recomputation::kNone : asked.mode;
  std::vector<bool> kept = kept_by(rule, micro_batch, before.graph.tensors().size());
  chosen.apply_to(kept);
  return Verifier(before, after, micro_batch, std::move(kept)).run();
}

}  // namespace

Pass pass() {
  return {kName, applies, run, verify, true};
}

}  // namespace poprun::passes::recomputation
