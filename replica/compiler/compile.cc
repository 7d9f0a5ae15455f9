#include "replica/compiler/compile.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/compiler/addresses/demand.h"
#include "replica/compiler/addresses/memory_plan.h"
#include "replica/compiler/addresses/tile_plan.h"
#include "replica/compiler/lives/aliases.h"
#include "replica/compiler/lives/liveness.h"
#include "replica/compiler/lowering/lower.h"
#include "replica/compiler/passes.h"
#include "replica/compiler/proofs/occupancy.h"
#include "replica/compiler/techniques/stages/balance.h"
#include "replica/compiler/techniques/stages/stage_cuts.h"
#include "replica/compiler/tiles/layout.h"

namespace poprun {
namespace {

/// Products whose plans need more memory than they may take.
std::uint64_t targets_missed(const ProductPlans& products) {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(products, [](const std::optional<PlannedProduct>& product) {
        return product && !product->target_met;
      }));
}

Result<Program> program_of(const Graph& graph, const StageParts& parts,
                           const CompileOptions& options) {
  const Liveness liveness = compute_liveness(graph);
  const Aliases aliases = options.in_place ? find_aliases(graph, liveness) : Aliases{};
  const ProductPlans products = plan_products(graph, options.device);
  const std::vector<Mapping> mappings = lay_out(graph, products, aliases, options.device);
  const LaidOut laid_out{graph,    liveness,       products,        aliases,
                         mappings, options.device, options.replicas};
  std::vector<IpuPlan> plans;
  for (std::uint32_t ipu = 0; ipu < options.ipus_per_replica; ++ipu) {
    MemoryClaims claims = claims_of(graph, liveness, ipu, aliases);
    MemoryPlan plan = plan_memory(claims.claims);
    POPRUN_TRY(verify_plan(claims.claims, plan));
    MemoryClaims remote_claims = claims_of(graph, liveness, ipu, {}, Memory::kStreaming);
    MemoryPlan remote_plan = plan_memory(remote_claims.claims);
    POPRUN_TRY(verify_plan(remote_claims.claims, remote_plan));
    TileClaims tile_claims = demand_on_tiles(laid_out, ipu);
    POPRUN_ASSIGN(TilePlan tiles, plan_tiles(tile_claims, liveness.step_count));
    plans.push_back({std::move(claims), std::move(plan), std::move(remote_claims),
                     std::move(remote_plan), std::move(tile_claims), std::move(tiles)});
  }
  Program program = lower(laid_out, plans, {options.replicas, options.ipus_per_replica}, parts);
  if (options.tile_layout ||
      (options.layout_if_too_large && !std::ranges::all_of(program.memory(), fits))) {
    add_layouts(plans, program);
  }
  POPRUN_TRY(verify_memory(program));
  program.set_model(options.model);
  program.set_compute_batches(options.compute_batches);
  if (const auto missed = targets_missed(products); missed > 0) {
    program.add_notes(
        fmt::format("{} ({})", planner::kMemoryTargetWarning, counted(missed, "product")));
  }
  return program;
}

/// Bytes that the fullest IPU lacks; at most 0 where the Program fits.
std::int64_t lacking(const Program& program) {
  std::int64_t most = std::numeric_limits<std::int64_t>::min();
  for (const proto::IpuMemory& memory : program.memory()) {
    most = std::max(most, needed(memory).count() - static_cast<std::int64_t>(memory.capacity()));
  }
  return most;
}

/// A job, compiled for one split of its layers.
struct Candidate {
  std::vector<std::size_t> begins;  ///< The first layer of each stage but the first, if balanced.
  Job job;
  Program program;
};

Result<Candidate> candidate(const CompileOptions& options, std::vector<std::size_t> begins) {
  if (options.before_compilation) {
    options.before_compilation();
  }
  POPRUN_ASSIGN(Job job, run_passes(options));
  POPRUN_ASSIGN(Program program, program_of(job.graph, job.parts, options));
  return Candidate{std::move(begins), std::move(job), std::move(program)};
}

MeasuredSplit measured(const Candidate& candidate) {
  MeasuredSplit split{candidate.begins, {}};
  for (const std::uint32_t ipu : candidate.job.ipu_of_stage) {
    split.peaks.push_back(needed(candidate.program.memory(static_cast<int>(ipu))));
  }
  return split;
}

CompileOptions with_split(CompileOptions options, const std::vector<Layer>& layers,
                          const std::vector<std::size_t>& begins) {
  options.pipeline.split.clear();
  for (const std::size_t begin : begins) {
    options.pipeline.split.push_back(layers[begin].name);
  }
  return options;
}

/// How a split was found, to end its note.
std::string found_how(const Candidate& best, std::size_t compiled) {
  if (lacking(best.program) <= 0) {
    return compiled == 1 ? "" : fmt::format(", found by compiling {} splits", compiled);
  }
  return compiled == 1
             ? "; it does not fit, and no other is expected to"
             : fmt::format("; of {} compiled splits none fits, and this one comes closest",
                           compiled);
}

/// From the split that the estimate gives, compiles those that measured memory leads to, until one
/// fits or none is new. Returns the one that fits or lacks least, with a note of what it is.
Result<Candidate> settle_split(const CompileOptions& options, Candidate best) {
  const Balancing balancing = *best.job.balancing;
  const std::vector<Layer> layers = best.job.graph.layers;
  CompileOptions quiet = options;
  quiet.after_pass = nullptr;
  std::vector<MeasuredSplit> tried = {measured(best)};
  while (lacking(best.program) > 0 && tried.size() < kSplitsMax) {
    const std::optional<std::vector<std::size_t>> begins = next_split(balancing, tried);
    if (!begins) {
      break;
    }
    Result<Candidate> next = candidate(with_split(quiet, layers, *begins), *begins);
    if (!next && next.error().code == ErrorCode::kBug) {
      return tl::unexpected<Error>{next.error()};
    }
    if (!next) {
      break;  // The model cannot be cut there, as between two uses of one running statistic.
    }
    tried.push_back(measured(*next));
    if (lacking(next->program) < lacking(best.program)) {
      best = *std::move(next);
    }
  }
  if (options.after_pass && best.begins != tried.front().begins) {
    POPRUN_TRY(run_passes(with_split(options, layers, best.begins)));
  }
  best.job.notes.insert(best.job.notes.begin(),
                        balanced_note(layers, best.begins, found_how(best, tried.size())));
  return best;
}

/// What each stage holds of the forward pass.
void describe_stages(const Job& job, Program& program) {
  std::vector<std::set<std::int32_t>> layers(job.ipu_of_stage.size());
  for (const Function& function : job.graph.functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        const Origin& origin = operation.origin;
        if (origin.layer != kNoLayer && origin.direction == Direction::kForward) {
          layers.at(origin.stage).insert(origin.layer);
        }
      }
    }
  }
  for (std::size_t s = 0; s < layers.size(); ++s) {
    proto::Stage& stage = *program.add_stages();
    stage.set_ipu(job.ipu_of_stage[s]);
    for (const std::int32_t layer : layers[s]) {
      stage.add_layers(job.graph.layers.at(static_cast<std::size_t>(layer)).name);
    }
  }
}

}  // namespace

Result<Graph> build_job(const CompileOptions& options) {
  POPRUN_ASSIGN(Job job, run_passes(options));
  return std::move(job.graph);
}

namespace {

/// A kind of tensors that may leave the chip.
struct Movable {
  Storage LocationOptions::*storage;
  std::string_view key;
};

/// The cheapest first: state moves once a step, accumulators and stashes in every micro-batch.
constexpr std::array<Movable, 4> kMovable = {
    {{&LocationOptions::optimizer_state, "memory.optimizer-state"},
     {&LocationOptions::weights, "memory.weights"},
     {&LocationOptions::accumulators, "memory.accumulators"},
     {&LocationOptions::activations, "memory.activations"}}};

Result<Candidate> plan_placed(const CompileOptions& options) {
  POPRUN_ASSIGN(Candidate settled, candidate(options, {}));
  if (settled.job.balancing) {
    settled.begins = balance(*settled.job.balancing);
    POPRUN_ASSIGN(settled, settle_split(options, std::move(settled)));
  }
  const std::vector<std::string>& notes = settled.job.notes;
  settled.program.mutable_notes()->Add(notes.begin(), notes.end());
  settled.program.mutable_locations()->Add(settled.job.locations.begin(),
                                           settled.job.locations.end());
  describe_stages(settled.job, settled.program);
  return settled;
}

void note_choice(const LocationOptions& asked, const LocationOptions& chosen, Program& program) {
  for (const auto& [storage, key] : kMovable) {
    if (asked.*storage == Storage::kAuto) {
      program.add_notes(
          chosen.*storage == Storage::kOffChip
              ? fmt::format("{} = auto means off-chip: the job does not fit with less "
                            "off the chip",
                            key)
              : fmt::format("{} = auto means on-chip", key));
    }
  }
}

/// Outlines whatever saves memory, also at the price of time, if the job then lacks less memory.
Status outline_all(CompileOptions& options, Candidate& best) {
  CompileOptions outlined = options;
  outlined.outlining = Outlining::kOn;
  outlined.after_pass = nullptr;
  POPRUN_ASSIGN(Candidate next, plan_placed(outlined));
  if (lacking(next.program) < lacking(best.program)) {
    next.program.add_notes("memory.outlining = auto means on: the job does not fit with less");
    options = std::move(outlined);
    best = std::move(next);
  }
  return {};
}

}  // namespace

Result<Program> plan_program(const CompileOptions& options) {
  CompileOptions chosen = options;
  POPRUN_ASSIGN(Candidate best, plan_placed(chosen));
  if (options.outlining == Outlining::kAuto && lacking(best.program) > 0) {
    POPRUN_TRY(outline_all(chosen, best));
  }
  for (const auto& [storage, key] : kMovable) {
    if (options.locations.*storage == Storage::kAuto && lacking(best.program) > 0) {
      chosen.locations.*storage = Storage::kOffChip;
      chosen.after_pass = nullptr;
      POPRUN_ASSIGN(best, plan_placed(chosen));
    }
  }
  note_choice(options.locations, chosen.locations, best.program);
  return std::move(best.program);
}

Result<Program> plan_graph(const Graph& graph, const CompileOptions& options) {
  POPRUN_TRY(verify_operations(graph));
  return program_of(graph, {}, options);
}

}  // namespace poprun
