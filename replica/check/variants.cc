#include "replica/check/variants.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/check/records.h"
#include "replica/program/host_contract.h"
#include "replica/program/timeline.h"

namespace poprun {
namespace {

constexpr Schedule kSchedules[] = {Schedule::kSequential, Schedule::kGrouped, Schedule::kInterleaved};
constexpr Recomputation kRecomputations[] = {Recomputation::kNone, Recomputation::kStandard, Recomputation::kLayer,
                                             Recomputation::kPipeline, Recomputation::kAll};

void add_phases(const Spread& spread, std::vector<Variant>& variants) {
  const auto add = [&](std::uint32_t ipus, Recomputation recomputation) {
    variants.push_back(
        {ipus, spread.stages, spread.split, Schedule::kPhased, recomputation, spread.own_stages, spread.begins});
  };
  for (const Recomputation recomputation : kRecomputations) {
    add(1, recomputation);
  }
  add(2, Recomputation::kNone);
  add(2, Recomputation::kPipeline);
}

std::vector<Placement> other_placements(std::uint32_t replicas) {
  return replicas > 1 ? std::vector{Placement::kOffChip, Placement::kSharded, Placement::kShardedOffChip}
                      : std::vector{Placement::kOffChip};
}

/// Sets where tensors are kept. A plain job keeps them all on-chip; other variants may keep them where the job does.
void place(const Variant& variant, const proto::RunConfig& job, bool is_plain, proto::MemoryConfig& memory) {
  const bool off_chip = variant.placement == Placement::kOffChip || variant.placement == Placement::kShardedOffChip;
  const bool sharded = variant.placement == Placement::kSharded || variant.placement == Placement::kShardedOffChip;
  if (is_plain || off_chip) {
    const std::string storage = word_of(off_chip ? Storage::kOffChip : Storage::kOnChip);
    memory.set_weights(storage);
    memory.set_optimizer_state(storage);
    memory.set_accumulators(storage);
    memory.set_activations(storage);
    memory.clear_location();
  }
  if (is_plain || sharded) {
    memory.clear_replicated_tensor_sharding();
  }
  if (sharded) {
    memory.add_replicated_tensor_sharding(word_of(ShardedKind::kWeights));
    memory.add_replicated_tensor_sharding(word_of(ShardedKind::kOptimizerState));
    if (choice_of<GradientReduction>(job.training().gradient_reduction()) == GradientReduction::kEveryMicroBatch) {
      memory.add_replicated_tensor_sharding(word_of(ShardedKind::kAccumulators));
    }
    memory.set_sharding_min_elements(std::min<std::uint64_t>(memory.sharding_min_elements(), 16));
  }
}

/// Returns what is known about a variant before it runs.
proto::CheckedRun describe(const Variant& variant) {
  proto::CheckedRun run;
  run.set_ipus(variant.ipus);
  run.set_stages(variant.stages);
  run.set_split(variant.split);
  run.set_schedule(name_of(variant.schedule));
  run.set_recomputation(word_of(variant.recomputation));
  run.set_outlined(variant.outlined);
  run.set_placement(std::string{to_text(variant.placement)});
  run.set_recomputation_memory(variant.recomputation_memory);
  return run;
}

void add_figures(const Program& program, proto::CheckedRun& run) {
  for (const proto::IpuMemory& memory : program.memory()) {
    const auto peak = static_cast<std::uint64_t>(needed(memory).count());
    run.set_peak_bytes(std::max(run.peak_bytes(), peak));
    run.set_capacity_bytes(memory.capacity());
  }
  const proto::Function* train = find_function(program, name_of(JobFunction::kTrain));
  if (train != nullptr) {
    const CallTime time = walk(program, *train);
    run.set_device_step_seconds(device_seconds(program, time.length));
    run.set_utilisation(time.utilisation());
  }
}

}  // namespace

std::vector<std::uint32_t> default_ipus(const proto::RunConfig& job) {
  const std::uint32_t own = job.topology().ipus_per_replica();
  return own > 1 ? std::vector<std::uint32_t>{own} : std::vector<std::uint32_t>{2, 3, 4};
}

std::vector<Variant> all_variants(const std::string& plain_split, std::span<const Spread> spreads,
                                  std::uint32_t replicas) {
  std::vector<Variant> variants;
  const auto add_outlined = [&variants](Variant variant) {
    variant.outlined = true;
    for (const Recomputation recomputation : {Recomputation::kNone, Recomputation::kAll}) {
      variant.recomputation = recomputation;
      variants.push_back(variant);
    }
  };
  for (const Recomputation recomputation : kRecomputations) {
    variants.push_back({1, 1, plain_split, Schedule::kSequential, recomputation});
  }
  for (const Spread& spread : spreads) {
    for (const Schedule schedule : kSchedules) {
      for (const Recomputation recomputation : kRecomputations) {
        if (!spread.phased) {
          variants.push_back(
              {spread.ipus, spread.stages, spread.split, schedule, recomputation, spread.own_stages, spread.begins});
        }
      }
    }
  }
  const std::size_t unplaced = variants.size();
  for (const Placement placement : other_placements(replicas)) {
    variants.push_back(variants.front());
    variants.back().placement = placement;
    // For each placement, take a different one of the 15 variants of each spread.
    for (std::size_t v = std::size(kRecomputations) + static_cast<std::size_t>(placement); v < unplaced;
         v += std::size(kSchedules) * std::size(kRecomputations)) {
      variants.push_back(variants[v]);
      variants.back().placement = placement;
    }
  }
  for (const Spread& spread : spreads) {
    add_phases(spread, variants);
  }
  const std::vector<Variant> phased(variants.begin(), variants.end());
  for (const Placement placement : other_placements(replicas)) {
    for (const std::uint32_t ipus : {1U, 2U}) {
      const auto last = std::find_if(phased.rbegin(), phased.rend(), [ipus](const Variant& v) {
        return v.phased() && v.ipus == ipus && v.recomputation == Recomputation::kPipeline;
      });
      if (last != phased.rend()) {
        variants.push_back(*last);
        variants.back().placement = placement;
      }
    }
  }
  add_outlined(variants.front());
  for (const Spread& spread : spreads) {
    if (!spread.phased) {
      add_outlined(
          {spread.ipus, spread.stages, spread.split, Schedule::kGrouped, {}, spread.own_stages, spread.begins});
    }
  }
  return variants;
}

proto::RunConfig config_of(const Variant& variant, const proto::RunConfig& job) {
  proto::RunConfig config = job;
  config.mutable_topology()->set_ipus_per_replica(variant.ipus);
  proto::PipelineConfig& pipeline = *config.mutable_pipeline();
  if (!job.has_pipeline()) {
    pipeline.set_recomputation_memory(0.9);
  }
  if (!variant.own_stages) {
    pipeline.clear_layers_per_ipu();
    pipeline.clear_split();
    pipeline.clear_device_mapping();
  }
  if (pipeline.layers_per_ipu().empty() && pipeline.split().empty()) {
    pipeline.mutable_split()->Assign(variant.begins.begin(), variant.begins.end());
  }
  config.mutable_memory()->set_outlining(word_of(variant.outlined ? Outlining::kOn : Outlining::kOff));
  config.mutable_report()->clear_dump_tensors();
  config.mutable_memory()->set_phases(variant.phased() ? variant.stages : 1);
  config.mutable_memory()->set_phase_ipus(variant.phased() ? variant.ipus : 1);
  if (variant.phased()) {
    pipeline.clear_device_mapping();
  }
  pipeline.set_schedule(word_of(variant.phased() ? Schedule{} : variant.schedule));
  pipeline.set_recomputation(word_of(variant.recomputation));
  if (variant.recomputation_memory > 0) {
    pipeline.set_recomputation_memory(variant.recomputation_memory);
  }
  const bool is_plain =
      variant.ipus == 1 && !variant.own_stages && !variant.phased() && variant.recomputation == Recomputation::kNone;
  if (is_plain) {
    pipeline.clear_recompute();
  }
  place(variant, job, is_plain && variant.placement == Placement::kOnChip, *config.mutable_memory());
  return config;
}

std::string_view to_text(Placement placement) {
  constexpr std::array<std::string_view, 4> kNames = {"", "off-chip", "sharded", "sharded off-chip"};
  return kNames.at(static_cast<std::size_t>(placement));
}

std::string to_text(const Variant& variant) {
  const std::string ipus = counted(variant.ipus, "IPU");
  const std::string how = fmt::format("recomputation {}{}{}{}", word_of(variant.recomputation),
                                      variant.placement == Placement::kOnChip ? "" : ", ", to_text(variant.placement),
                                      variant.outlined ? ", outlined" : "");
  if (variant.phased()) {
    return fmt::format("{} on {}, {}", counted(variant.stages, "phase"), ipus, how);
  }
  return variant.stages == 1 ? fmt::format("{}, {}", ipus, how)
                             : fmt::format("{}, {}, {}", ipus, name_of(variant.schedule), how);
}

std::string bytes_of_program(Program program) {
  program.clear_notes();
  return program.SerializeAsString();
}

std::uint64_t digest_of_program(const Program& program) {
  const std::string bytes = bytes_of_program(program);
  return digest_of(std::as_bytes(std::span(bytes)));
}

CompiledVariant VariantCompiler::compile(Variant variant) {
  Result<Program> program =
      variant.recomputation == Recomputation::kStandard ? compile_standard(variant) : compile_(variant);
  CompiledVariant compiled{to_text(variant), describe(variant), {}};
  if (program) {
    compiled.program = *std::move(program);
    add_figures(compiled.program, compiled.run);
    if (variant.recomputation == Recomputation::kNone && !variant.outlined) {
      const auto& ipus = compiled.program.memory();
      storing_.emplace(Storing{digest_of_program(compiled.program),
                               std::ranges::max_element(ipus, {}, &proto::IpuMemory::images_peak)->images_peak(),
                               compiled.run.capacity_bytes()});
    }
    return compiled;
  }
  compiled.run.set_verdict(program.error().code == ErrorCode::kBug ? proto::CheckedRun::DIFFERENT
                                                                   : proto::CheckedRun::NOT_APPLICABLE);
  compiled.run.set_detail(fmt::format("does not compile: {}", program.error().message));
  return compiled;
}

/// Compiles a variant with recomputation "standard" and sets its memory goal.
Result<Program> VariantCompiler::compile_standard(Variant& variant) {
  constexpr double kLowest = 1e-9;
  Result<Program> program = compile_(variant);
  for (const double share : {0.5, 0.0}) {
    if (!program || !storing_ || digest_of_program(*program) != storing_->digest) {
      return program;
    }
    variant.recomputation_memory =
        std::max(kLowest, share * static_cast<double>(storing_->images) / static_cast<double>(storing_->capacity));
    program = compile_(variant);
  }
  return program;
}

}  // namespace poprun
