#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/options/option_table.h"
#include "launcher/options/option_values.h"
#include "launcher/options/rules.h"
#include "replica/base/text.h"
#include "replica/choices/choices.h"

namespace poprun::launcher {
namespace {

constexpr std::string_view kLayers = "pipeline.layers-per-ipu";
constexpr std::string_view kSplit = "pipeline.split";
constexpr std::string_view kMapping = "pipeline.device-mapping";
constexpr std::string_view kPhases = "memory.phases";
constexpr std::string_view kPhaseIpus = "memory.phase-ipus";

/// Resolves the two options that say where to split the model. One on the command line overrides the other in the file.
Status choose_cuts(Options& options) {
  proto::PipelineConfig& pipeline = *options.config.mutable_pipeline();
  Setting& layers = setting_of(options, kLayers);
  Setting& split = setting_of(options, kSplit);
  if (pipeline.split().empty() || layers.origin == Origin::kDefault) {
    return {};
  }
  if (layers.origin == split.origin) {
    return fail(ErrorCode::kUsage, fmt::format("{} and {} cannot be combined; give only one of "
                                               "them",
                                               kLayers, kSplit));
  }
  const bool layers_win = layers.origin > split.origin;
  options.notes.push_back(
      layers_win ? fmt::format("{} replaces the file's {}", shown(options, kLayers), shown(options, kSplit))
                 : fmt::format("{} replaces the file's {}", shown(options, kSplit), shown(options, kLayers)));
  (layers_win ? split : layers).text.clear();
  if (layers_win) {
    pipeline.clear_split();
  } else {
    pipeline.clear_layers_per_ipu();
  }
  return {};
}

bool is_phased(const Options& options) {
  return options.config.memory().phases() > 1;
}

/// Returns the number of stages, or nothing if it depends on the model.
std::optional<std::uint32_t> stages_of(const proto::PipelineConfig& pipeline) {
  if (!pipeline.split().empty()) {
    return static_cast<std::uint32_t>(pipeline.split_size()) + 1;
  }
  if (!pipeline.layers_per_ipu().empty()) {
    return static_cast<std::uint32_t>(pipeline.layers_per_ipu_size());
  }
  return std::nullopt;
}

/// Returns the number of stages. If it depends on the model, returns the largest possible number: one stage on each IPU
/// of the mapping or of the replica.
std::uint32_t most_stages_of(const Options& options) {
  const proto::PipelineConfig& pipeline = options.config.pipeline();
  if (is_phased(options)) {
    return options.config.memory().phases();
  }
  const auto ipus = pipeline.device_mapping().empty() ? options.config.topology().ipus_per_replica()
                                                      : static_cast<std::uint32_t>(pipeline.device_mapping_size());
  return stages_of(pipeline).value_or(ipus);
}

Status check_mapping(Options& options) {
  const proto::PipelineConfig& pipeline = options.config.pipeline();
  const std::vector<std::uint32_t> mapping(pipeline.device_mapping().begin(), pipeline.device_mapping().end());
  const std::uint32_t ipus = options.config.topology().ipus_per_replica();
  const std::uint32_t highest = *std::ranges::max_element(mapping);
  if (highest >= ipus) {
    return fail(ErrorCode::kUsage, fmt::format("{}: a replica with --ipus-per-replica = {} has no IPU {}; IPUs are "
                                               "numbered from 0; set --ipus-per-replica {} or use lower numbers",
                                               shown(options, kMapping), ipus, highest, highest + 1));
  }
  const std::optional<std::uint32_t> stages = stages_of(pipeline);
  if (stages && *stages != mapping.size()) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} names {}, but {} has {}; give the IPU of each stage", shown(options, kMapping),
                            counted(mapping.size(), "IPU"), shown(options, pipeline.split().empty() ? kLayers : kSplit),
                            counted(*stages, "stage")));
  }
  const std::set<std::uint32_t> distinct(mapping.begin(), mapping.end());
  if (!stages && distinct.size() < mapping.size()) {
    return fail(ErrorCode::kUsage, fmt::format("{} names an IPU twice, but each balanced stage needs its own; give the "
                                               "layers of each stage with {}",
                                               shown(options, kMapping), kLayers));
  }
  return {};
}

/// Checks the phases, which are stages that take turns on the one or two IPUs of a replica.
Status check_phases(Options& options) {
  const proto::RunConfig& config = options.config;
  const std::uint32_t phases = config.memory().phases();
  const std::uint32_t phase_ipus = config.memory().phase_ipus();
  const std::uint32_t ipus = config.topology().ipus_per_replica();
  if (ipus != phase_ipus) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: {} = {} must equal --ipus-per-replica = {}; set both to {}", shown(options, kPhases),
                            kPhaseIpus, phase_ipus, ipus, std::clamp(ipus, 1U, 2U)));
  }
  if (!config.pipeline().device_mapping().empty()) {
    return fail(ErrorCode::kUsage, fmt::format("{} and {} cannot be combined: phase p is on IPU p % {}; give only one "
                                               "of them",
                                               shown(options, kMapping), shown(options, kPhases), phase_ipus));
  }
  const std::optional<std::uint32_t> stages = stages_of(config.pipeline());
  if (stages && *stages != phases) {
    return fail(
        ErrorCode::kUsage,
        fmt::format("{}, but {} defines {}; remove the latter, or make the numbers of phases equal",
                    shown(options, kPhases), shown(options, config.pipeline().split().empty() ? kLayers : kSplit),
                    counted(*stages, "phase")));
  }
  return {};
}

/// Checks that there is an IPU for each stage. Requires: there is no device mapping.
Status check_ipus(Options& options) {
  const proto::PipelineConfig& pipeline = options.config.pipeline();
  const std::uint32_t ipus = options.config.topology().ipus_per_replica();
  const std::uint32_t stages = stages_of(pipeline).value_or(1);
  if (stages > ipus) {
    return fail(ErrorCode::kUsage, fmt::format("{}: {} need {} IPUs, but --ipus-per-replica = {}; set "
                                               "--ipus-per-replica {}, or let stages share IPUs with {}",
                                               shown(options, pipeline.split().empty() ? kLayers : kSplit),
                                               counted(stages, "stage"), stages, ipus, stages, kMapping));
  }
  return {};
}

/// Derives the recomputation mode, but only to show it. The configuration leaves the mode open, because a check,
/// for example, varies the IPUs and the schedule; the compiler applies default_recomputation to the actual stages.
void derive_recomputation(Options& options) {
  const proto::PipelineConfig& pipeline = options.config.pipeline();
  if (pipeline.recomputation().empty() && !options.config.inference()) {
    const Schedule schedule = schedule_of(choice_of<Schedule>(pipeline.schedule()), options.config.memory().phases());
    setting_of(options, "pipeline.recomputation").derived =
        word_of(default_recomputation(most_stages_of(options), schedule));
  }
}

void note_pipeline_without_effect(Options& options) {
  const proto::PipelineConfig& pipeline = options.config.pipeline();
  const bool one_stage = most_stages_of(options) == 1;
  const auto note = [&](std::string_view name, bool has_effect, std::string_view because) {
    if (!has_effect && setting_of(options, name).origin != Origin::kDefault) {
      options.notes.push_back(fmt::format("{} has no effect {}", shown(options, name), because));
    }
  };
  const bool check = options.subcommand() == Subcommand::kCheck;  // A check tries all schedules.
  note("pipeline.schedule", check || !one_stage, "with a single stage");
  note("pipeline.schedule", check || !is_phased(options), "with memory.phases");
  note(kPhaseIpus, is_phased(options), "without memory.phases");
  for (const char* name : {"pipeline.recomputation", "pipeline.recomputation-checkpoints", "pipeline.recompute",
                           "pipeline.recomputation-memory"}) {
    note(name, !options.config.inference(), "in inference");
  }
  const bool is_standard = open_choice<Recomputation>(pipeline.recomputation()) == Recomputation::kStandard;
  note("pipeline.recomputation-memory", check || options.config.inference() || is_standard,
       "without pipeline.recomputation = standard");
}

}  // namespace

std::vector<OptionRow> pipeline_rows() {
  return {file_key("pipeline.layers-per-ipu", "LIST|balanced", "balanced",
                   "Number of layers per stage, such as 3 7 7 7; one may be -1, for the remaining layers. Embeddings "
                   "and heads are not counted: they belong to the first and the last stage. balanced evens out device "
                   "time; if that does not fit in memory, up to 5 other splits are compiled to find one that does",
                   LayersPerIpu{},
                   [](Options& o, const std::vector<std::int64_t>& layers) {
                     auto& field = *o.config.mutable_pipeline()->mutable_layers_per_ipu();
                     field.Assign(layers.begin(), layers.end());
                   }),
          file_key("pipeline.split", "NAMES", "",
                   "Alternative to layers-per-ipu: layers or tensors at which the second and later stages begin, "
                   "separated by blanks",
                   Names{},
                   [](Options& o, const std::vector<std::string>& names) {
                     auto& field = *o.config.mutable_pipeline()->mutable_split();
                     field.Assign(names.begin(), names.end());
                   }),
          file_key("pipeline.device-mapping", "LIST", "",
                   "IPU of each stage, such as 0 1 2 3 0, where the first and the last stage share IPU 0 "
                   "(default: stage 0 on IPU 0, stage 1 on IPU 1 ...)",
                   Integers{0, 63},
                   [](Options& o, const std::vector<std::int64_t>& ipus) {
                     auto& field = *o.config.mutable_pipeline()->mutable_device_mapping();
                     field.Assign(ipus.begin(), ipus.end());
                   }),
          file_key("pipeline.schedule", "NAME", word_of(Schedule{}),
                   "Order of the micro-batches: grouped (all stages forward and backward in each "
                   "cycle), interleaved (forward and backward alternate; fewer activations are "
                   "stored), or sequential (one stage at a time, no pipeline)",
                   OneOf<Schedule>{}),
          file_key("pipeline.recomputation", "NAME", "",
                   "Activations that the backward pass recomputes instead of storing them: none, standard (chooses "
                   "checkpoints within recomputation-memory), layer (stores the inputs of layers), pipeline (stores "
                   "the inputs of stages, and everything in the last one, whose backward pass follows immediately) or "
                   "all (like pipeline, but also recomputes the last stage) (default: pipeline if there are several "
                   "stages and the schedule is not sequential, else none)",
                   OneOf<Recomputation>{}),
          file_key("pipeline.recomputation-checkpoints", "REGEX", "",
                   "Store tensors whose name matches REGEX, whatever the mode", Regex{}),
          file_key("pipeline.recompute", "REGEX", "", "Recompute tensors whose name matches REGEX, whatever the mode",
                   Regex{}),
          file_key("pipeline.recomputation-memory", "X", "0.5",
                   "With recomputation standard, fraction of an IPU's memory that tensors can use; the rest is for "
                   "code and temporaries",
                   Real{0, 1, false})};
}

std::vector<OptionRow> phase_rows() {
  return {
      file_key("memory.phases", "N", "1",
               "Split the model into N phases: each one works on all micro-batches of a step, forward or backward, "
               "before the next one begins, so that off-chip tensors move once per phase. Set pipeline.layers-per-ipu "
               "or pipeline.split to choose where to split; by default, phases have about the same number of bytes of "
               "parameters. 1: no phases",
               Integer{1, 1024}),
      file_key("memory.phase-ipus", "N", "1",
               "IPUs that take turns to run phases: 1, or 2, so that one can load a phase while the other computes",
               Integer{1, 2})};
}

Status check_pipeline(Options& options) {
  POPRUN_TRY(choose_cuts(options));
  const bool mapped = !options.config.pipeline().device_mapping().empty();
  POPRUN_TRY(is_phased(options) ? check_phases(options) : mapped ? check_mapping(options) : check_ipus(options));
  derive_recomputation(options);
  note_pipeline_without_effect(options);
  return {};
}

}  // namespace poprun::launcher
