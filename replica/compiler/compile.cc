#include "replica/compiler/compile.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
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
#include "replica/compiler/lowering/replication.h"
#include "replica/compiler/passes.h"
#include "replica/compiler/proofs/lowering.h"
#include "replica/compiler/proofs/occupancy.h"
#include "replica/compiler/proofs/replication.h"
#include "replica/compiler/tiles/layout.h"

namespace poprun {
namespace {

/// Counts products whose plans exceed their memory targets.
std::uint64_t targets_missed(const ProductPlans& products) {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      products, [](const std::optional<PlannedProduct>& product) { return product && !product->target_met; }));
}

Result<Program> program_of(const Graph& graph, const StageParts& parts, const CompileOptions& options) {
  const Liveness liveness = compute_liveness(graph);
  const Aliases aliases = options.in_place ? find_aliases(graph, liveness) : Aliases{};
  const ProductPlans products = plan_products(graph, options.device);
  const std::vector<Mapping> mappings = lay_out(graph, products, aliases, options.device);
  const LaidOut laid_out{graph, liveness, products, aliases, mappings, options.device, options.replicas};
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
    plans.push_back({std::move(claims), std::move(plan), std::move(remote_claims), std::move(remote_plan),
                     std::move(tile_claims), std::move(tiles)});
  }
  Program program = lower(laid_out, plans, {options.replicas, options.ipus_per_replica}, parts);
  if (options.tile_layout || (options.layout_if_too_large && !std::ranges::all_of(program.memory(), fits))) {
    add_layouts(plans, program);
  }
  POPRUN_TRY(verify_lowering(graph, program));
  POPRUN_TRY(verify_memory(program));
  if (options.replicas > 1) {
    mark_replication(program);
    POPRUN_TRY(verify_replication(program));
  }
  program.set_model(options.model);
  program.set_compute_batches(options.compute_batches);
  if (const auto missed = targets_missed(products); missed > 0) {
    add_note({"products.memory-target",
              fmt::format("{} ({})", planner::kMemoryTargetWarning, counted(missed, "product")),
              {{"products", missed}}},
             program);
  }
  return program;
}

/// Adds the forward layers of each stage to the program.
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

std::int64_t Compiled::lacking() const {
  std::int64_t most = std::numeric_limits<std::int64_t>::min();
  for (const proto::IpuMemory& memory : program.memory()) {
    most = std::max(most, needed(memory).count() - static_cast<std::int64_t>(memory.capacity()));
  }
  return most;
}

Result<Graph> build_job(const CompileOptions& options) {
  POPRUN_ASSIGN(Job job, run_passes(options));
  return std::move(job.graph);
}

Result<Compiled> compile_settled(const CompileOptions& options, const CompileObserver& observer) {
  if (observer.before_compilation) {
    observer.before_compilation();
  }
  POPRUN_ASSIGN(Job job, run_passes(options, {}, observer));
  POPRUN_ASSIGN(Program program, program_of(job.graph, job.parts, options));
  for (const Note& note : job.notes) {
    add_note(note, program);
  }
  program.mutable_locations()->Add(job.locations.begin(), job.locations.end());
  describe_stages(job, program);
  return Compiled{options, std::move(job), std::move(program), observer.after_pass != nullptr};
}

Result<Program> plan_graph(const Graph& graph, const CompileOptions& options) {
  POPRUN_TRY(verify_operations(graph));
  return program_of(graph, {}, options);
}

}  // namespace poprun
