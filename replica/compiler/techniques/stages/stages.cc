#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/listed_rows.h"
#include "replica/base/text.h"
#include "replica/compiler/job/pass.h"
#include "replica/compiler/techniques/pipeline/pipeline.h"
#include "replica/compiler/techniques/stages/balance.h"
#include "replica/compiler/techniques/stages/stage_cuts.h"
#include "replica/ops/optimizers/optimizer.h"

/// Assigns pipeline stages to the operations of the forward passes, and IPUs to the stages. Phases take turns on IPUs.
namespace poprun::passes::stages {
namespace {

constexpr std::string_view kName = "stages";

std::vector<ForwardPass> forward_passes(const CompileOptions& options, const Job& job) {
  std::vector<ForwardPass> passes;
  if (job.training) {
    passes.push_back({job.graph, job.training->micro_batch, "", options.model});
  }
  if (job.evaluation) {
    passes.push_back({job.graph, *job.evaluation, kEvaluationPrefix, options.model});
  }
  return passes;
}

LayerUse use_of(const CompileOptions& options) {
  std::int64_t state_bytes = options.precision.master_weights ? 4 : 0;
  if (const Optimizer* optimizer = find_optimizer(options.optimizer.name)) {
    // Counts only states of a large matrix's shape; others, such as Adafactor's rows and columns, are small.
    const TensorType matrix{DataType::kF32, {1 << 15, 1 << 15}, Layout::kRowMajor};
    for (const auto& [state, type] : optimizer->states_of(matrix)) {
      const std::int64_t bytes = options.precision.half_optimizer_state && state->may_be_half ? 2 : 4;
      state_bytes += bytes * type.elements() / matrix.elements();
    }
  }
  return {.device = options.device,
          .training = !options.inference,
          .half = options.precision.half,
          .half_partials = partials_everywhere(options.planner) == Precision::kHalf,
          .permille = permille_everywhere(options.planner),
          .state_bytes = state_bytes};
}

/// Returns, for each stage, the number of micro-batches whose activations it keeps.
std::vector<std::int64_t> in_flight(const CompileOptions& options, std::size_t stages) {
  std::vector<std::int64_t> kept(stages, 1);
  if (!options.inference && recomputation_of(options.pipeline, stages) == Recomputation::kNone) {
    const Schedule schedule = schedule_of(options.pipeline);
    for (std::size_t s = 0; s < stages; ++s) {
      kept[s] = stash_length(schedule, static_cast<std::uint32_t>(stages), static_cast<std::uint32_t>(s),
                             options.gradient_accumulation);
    }
  }
  return kept;
}

/// Returns, for each stage, whether its forward part runs again. kStandard counts as false, because its choice depends
/// on the memory needed, which is not known yet.
std::vector<bool> recomputing(const CompileOptions& options, std::size_t stages) {
  const Recomputation mode = recomputation_of(options.pipeline, stages);
  std::vector<bool> recomputes(stages,
                               !options.inference && mode != Recomputation::kNone && mode != Recomputation::kStandard);
  recomputes.back() = recomputes.back() && mode != Recomputation::kPipeline;
  return recomputes;
}

Result<std::vector<StageCut>> balanced_cuts(const CompileOptions& options, const ForwardPass& forward, Job& job) {
  const std::vector<std::uint32_t>& mapping = options.pipeline.device_mapping;
  const std::vector<Layer>& layers = job.graph.layers;
  const std::size_t wanted = mapping.empty() ? static_cast<std::size_t>(options.ipus_per_replica) : mapping.size();
  if (wanted > layers.size() && !mapping.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("pipeline.device-mapping = {} needs {} stages, but {} can be cut into "
                                               "at most {}; remove entries; layers: {}",
                                               fmt::join(mapping, " "), mapping.size(), options.model, layers.size(),
                                               abbreviated(names_of(layers))));
  }
  const std::size_t stages = std::min(wanted, layers.size());
  if (stages <= 1) {
    return std::vector<StageCut>{};
  }
  job.balancing = Balancing{layer_weights(forward, use_of(options)), in_flight(options, stages),
                            options.device.capacity(), recomputing(options, stages)};
  return cuts_before(balance(*job.balancing));
}

bool is_phased(const CompileOptions& options) {
  return options.pipeline.phases > 1;
}

/// Returns cuts that give all phases similar sizes of parameters and state, which move before and after each phase.
Result<std::vector<StageCut>> balanced_phases(const CompileOptions& options, const ForwardPass& forward, Job& job) {
  const std::vector<Layer>& layers = job.graph.layers;
  const std::uint32_t phases = options.pipeline.phases;
  if (phases > layers.size()) {
    return fail(ErrorCode::kUsage,
                fmt::format("memory.phases = {}: {} can be cut into at most {}; use fewer, "
                            "or leave the option out; layers: {}",
                            phases, options.model, counted(layers.size(), "phase"), abbreviated(names_of(layers))));
  }
  Balancing balancing{layer_weights(forward, use_of(options)), std::vector<std::int64_t>(phases, 1),
                      options.device.capacity()};
  for (LayerWeight& layer : balancing.layers) {
    layer = {Cycles{layer.bytes.count()}, Bytes{}};  // Phases are balanced by bytes instead of cycles.
  }
  return cuts_before(balance(balancing));
}

/// Checks that the requested cuts give the requested number of phases. Errors: kUsage.
Status check_phases(const CompileOptions& options, std::size_t stages, const std::string& asked) {
  if (is_phased(options) && stages != options.pipeline.phases) {
    return fail(ErrorCode::kUsage, fmt::format("memory.phases = {}, but {} gives {}; make the numbers equal, or leave "
                                               "out the pipeline setting",
                                               options.pipeline.phases, asked, counted(stages, "phase")));
  }
  return {};
}

Result<std::vector<StageCut>> cuts_of(const CompileOptions& options, const ForwardPass& forward, Job& job) {
  const PipelineOptions& pipeline = options.pipeline;
  return !pipeline.layers_per_ipu.empty() ? cuts_by_counts(forward, pipeline.layers_per_ipu)
         : !pipeline.split.empty()        ? cuts_by_names(forward, pipeline.split)
         : is_phased(options)             ? balanced_phases(options, forward, job)
                                          : balanced_cuts(options, forward, job);
}

std::vector<std::uint32_t> ipus_of(const PipelineOptions& pipeline, std::size_t stages) {
  std::vector<std::uint32_t> ipus = pipeline.device_mapping;
  if (ipus.empty()) {
    ipus.resize(stages);
    std::iota(ipus.begin(), ipus.end(), 0U);
  }
  for (std::uint32_t& ipu : ipus) {
    ipu = pipeline.phases > 1 ? ipu % pipeline.phase_ipus : ipu;
  }
  return ipus;
}

/// Returns "conv1", "part of conv1, conv2" or "embeddings to h.3 (4 layers)", with the number of counted layers.
/// `shared`: layers of which other stages also hold parts.
std::string span_text(const std::vector<Layer>& layers, const std::set<std::int32_t>& held,
                      const std::set<std::int32_t>& shared) {
  std::vector<std::string> names;
  std::uint64_t count = 0;
  for (const std::int32_t l : held) {
    const Layer& layer = layers.at(static_cast<std::size_t>(l));
    names.push_back((shared.contains(l) ? "part of " : "") + layer.name);
    count += layer.counted ? 1 : 0;
  }
  if (names.size() <= 2) {
    return fmt::format("{}", fmt::join(names, ", "));
  }
  return fmt::format("{} to {}{}", names.front(), names.back(),
                     count == 0 ? "" : fmt::format(" ({})", counted(count, "layer")));
}

/// Adds a note on each stage: its IPU, layers, and newly used parameters. If there are many stages, some share a note.
void note_stages(const ForwardPass& forward, std::string_view word, Job& job) {
  struct Stage {
    std::set<std::int32_t> layers;
    std::int64_t parameters = 0;
  };
  std::vector<Stage> stages(job.ipu_of_stage.size());
  std::map<std::int32_t, std::set<std::uint32_t>> stages_of_layer;
  std::set<TensorId> seen;
  for (const Operation& operation : forward.operations()) {
    Stage& stage = stages.at(operation.origin.stage);
    const std::int32_t layer = operation.origin.layer;
    if (layer != kNoLayer) {
      stage.layers.insert(layer);
      stages_of_layer[layer].insert(operation.origin.stage);
    }
    for (const TensorId id : operation.inputs) {
      const Tensor& tensor = job.graph.tensor(id);
      const bool owns = tensor.role == Role::kParameter && seen.insert(id).second;
      stage.parameters += owns ? tensor.type.elements() : 0;
    }
  }
  std::set<std::int32_t> shared;
  for (const auto& [layer, holders] : stages_of_layer) {
    if (holders.size() > 1) {
      shared.insert(layer);
    }
  }
  const auto note = [&](const std::string& which, std::size_t first, std::size_t end) {
    std::set<std::int32_t> held;
    std::int64_t parameters = 0;
    for (std::size_t s = first; s < end; ++s) {
      parameters += stages[s].parameters;
      held.insert(stages[s].layers.begin(), stages[s].layers.end());
    }
    job.notes.push_back({"stages.layers",
                         fmt::format("{}: {}, {}", which, span_text(job.graph.layers, held, shared),
                                     counted(static_cast<std::uint64_t>(parameters), "parameter")),
                         {{"first", first}, {"end", end}, {"layers", held.size()}, {"parameters", parameters}}});
  };
  for (const ListedRow& row : listed_by(stages, &Stage::parameters)) {
    const std::size_t s = row.index;
    if (row.left_out > 0) {
      note(fmt::format("{}s {} to {}", word, s - row.left_out, s - 1), s - row.left_out, s);
    }
    note(fmt::format("{} {} on IPU {}", word, s, job.ipu_of_stage[s]), s, s + 1);
  }
}

/// Returns the setting that determines where to cut, such as "pipeline.split = conv2"; empty if there is none.
std::string setting_text(const PipelineOptions& pipeline) {
  return !pipeline.layers_per_ipu.empty()
             ? fmt::format("pipeline.layers-per-ipu = {}", fmt::join(pipeline.layers_per_ipu, " "))
         : !pipeline.split.empty() ? fmt::format("pipeline.split = {}", fmt::join(pipeline.split, " "))
                                   : "";
}

/// Adds a note if IPUs stay unused, with the reason: a setting, or the model itself.
void note_unused_ipus(const CompileOptions& options, Job& job) {
  const std::set<std::uint32_t> used(job.ipu_of_stage.begin(), job.ipu_of_stage.end());
  if (static_cast<std::int64_t>(used.size()) >= options.ipus_per_replica) {
    return;
  }
  const PipelineOptions& pipeline = options.pipeline;
  const std::string setting = !pipeline.device_mapping.empty()
                                  ? fmt::format("pipeline.device-mapping = {}", fmt::join(pipeline.device_mapping, " "))
                                  : setting_text(pipeline);
  job.notes.push_back({"stages.unused-ipus",
                       fmt::format("{} uses only {} of the {} IPUs in each replica{}",
                                   setting.empty() ? "the model" : setting, used.size(), options.ipus_per_replica,
                                   setting.empty() ? fmt::format(": it can be cut into at most {}",
                                                                 counted(job.ipu_of_stage.size(), "stage"))
                                                   : ""),
                       {{"used", used.size()}, {"ipus", options.ipus_per_replica}}});
}

Status run(const CompileOptions& options, Job& job) {
  const std::vector<ForwardPass> passes = forward_passes(options, job);
  const ForwardPass& model = passes.at(0);
  POPRUN_ASSIGN(const std::vector<StageCut> cuts, cuts_of(options, model, job));
  POPRUN_TRY(check_phases(options, cuts.size() + 1, setting_text(options.pipeline)));
  job.ipu_of_stage = ipus_of(options.pipeline, cuts.size() + 1);
  const Positions positions = positions_in(model);
  for (const ForwardPass& forward : passes) {
    POPRUN_TRY(assign_stages(job.graph, forward, positions, cuts));
  }
  const std::string asked = setting_text(options.pipeline);
  POPRUN_TRY(check_no_stage_is_empty(model, cuts.size() + 1, asked.empty() ? "balanced stages" : asked));
  if (job.ipu_of_stage.size() > 1) {
    note_stages(model, is_phased(options) ? "phase" : "stage", job);
  }
  note_unused_ipus(options, job);
  return {};
}

tl::unexpected<Error> bug(const std::string& what) {
  return fail(ErrorCode::kBug, fmt::format("pass {}: {}", kName, what));
}

bool differ_only_in_stage(const Operation& a, const Operation& b) {
  return a.kind == b.kind && a.inputs == b.inputs && a.outputs == b.outputs && a.attributes == b.attributes &&
         a.origin.layer == b.origin.layer && a.origin.direction == b.origin.direction;
}

bool differ_only_in_stage(const Region& a, const Region& b) {
  return a.repeat == b.repeat &&
         std::ranges::equal(a.operations, b.operations,
                            [](const Operation& x, const Operation& y) { return differ_only_in_stage(x, y); });
}

Status verify_operations_stay(const Job& before, const Job& after) {
  for (std::size_t f = 0; f < before.graph.functions.size(); ++f) {
    const Function& function = after.graph.functions.at(f);
    if (!std::ranges::equal(before.graph.functions[f].regions, function.regions,
                            [](const Region& a, const Region& b) { return differ_only_in_stage(a, b); })) {
      return bug(fmt::format("changes more than stages in {}", function.name));
    }
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        if (operation.origin.stage >= after.ipu_of_stage.size()) {
          return bug(fmt::format("{} is in stage {}, but the number of stages is {}", operation.kind,
                                 operation.origin.stage, after.ipu_of_stage.size()));
        }
      }
    }
  }
  return {};
}

Status verify_flow(const Job& job) {
  for (const Function& function : job.graph.functions) {
    for (const Region& region : function.regions) {
      std::map<TensorId, std::uint32_t> written_in;
      for (const Operation& operation : region.operations) {
        for (const TensorId id : operation.inputs) {
          const auto writer = written_in.find(id);
          if (writer != written_in.end() && writer->second > operation.origin.stage) {
            return pass_bug(kName, job.graph, id,
                            fmt::format("is computed in stage {}, but read in the earlier stage {}", writer->second,
                                        operation.origin.stage));
          }
        }
        for (const TensorId id : operation.outputs) {
          written_in[id] = operation.origin.stage;
        }
      }
    }
  }
  return {};
}

/// Checks that each stage has as many counted layers as its entry of layers_per_ipu states.
Status verify_counts(const CompileOptions& options, const Job& job) {
  const std::vector<std::int64_t>& wanted = options.pipeline.layers_per_ipu;
  if (wanted.empty()) {
    return {};
  }
  std::map<std::uint32_t, std::set<std::int32_t>> layers;
  for (const Operation& operation : job.graph.at(forward_passes(options, job).at(0).place).operations) {
    const std::int32_t layer = operation.origin.layer;
    if (layer != kNoLayer && job.graph.layers.at(static_cast<std::size_t>(layer)).counted) {
      layers[operation.origin.stage].insert(layer);
    }
  }
  for (std::size_t s = 0; s < wanted.size(); ++s) {
    const auto had = static_cast<std::int64_t>(layers[static_cast<std::uint32_t>(s)].size());
    if (wanted[s] >= 0 && wanted[s] != had) {
      return bug(
          fmt::format("stage {} has {}, not {}", s, counted(static_cast<std::uint64_t>(had), "layer"), wanted[s]));
    }
  }
  return {};
}

Status verify(const CompileOptions& options, const Job& before, const Job& after) {
  const std::vector<std::uint32_t>& mapping = options.pipeline.device_mapping;
  if (!mapping.empty() && after.ipu_of_stage != mapping) {
    return bug("stages are not on the IPUs of pipeline.device-mapping");
  }
  for (std::size_t phase = 0; is_phased(options) && phase < after.ipu_of_stage.size(); ++phase) {
    if (after.ipu_of_stage.size() != options.pipeline.phases ||
        after.ipu_of_stage[phase] != phase % options.pipeline.phase_ipus) {
      return bug(
          fmt::format("phase {} of {} is on IPU {}", phase, after.ipu_of_stage.size(), after.ipu_of_stage[phase]));
    }
  }
  for (const std::uint32_t ipu : after.ipu_of_stage) {
    if (ipu >= options.ipus_per_replica) {
      return bug(fmt::format("a stage is on IPU {}, which does not exist", ipu));
    }
  }
  POPRUN_TRY(verify_operations_stay(before, after));
  POPRUN_TRY(verify_counts(options, after));
  return verify_flow(after);
}

}  // namespace

Pass pass() {
  return {kName, always, run, verify};
}

}  // namespace poprun::passes::stages
