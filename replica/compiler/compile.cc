#include "replica/compiler/compile.h"

#include "replica/compiler/liveness/liveness.h"
#include "replica/compiler/lowering/lower.h"
#include "replica/compiler/occupancy/occupancy.h"
#include "replica/compiler/passes/passes.h"
#include "replica/compiler/placement/memory_plan.h"
#include "replica/compiler/placement/out_of_memory.h"

namespace poprun {
namespace {

Result<Program> plan_graph(const Graph& graph, const CompileOptions& options) {
  const Liveness liveness = compute_liveness(graph);
  std::vector<IpuPlan> plans;
  for (std::uint32_t ipu = 0; ipu < options.ipus_per_replica; ++ipu) {
    MemoryClaims claims = claims_of(graph, liveness, ipu);
    MemoryPlan plan = plan_memory(claims.claims);
    POPRUN_TRY(verify_plan(claims.claims, plan));
    plans.push_back({std::move(claims), std::move(plan)});
  }
  Program program =
      lower(graph, liveness, plans, options.device, {options.replicas, options.ipus_per_replica});
  POPRUN_TRY(verify_memory(program));
  program.set_model(options.model);
  return program;
}

}  // namespace

Result<Graph> build_job(const CompileOptions& options) {
  POPRUN_ASSIGN(Job job, run_passes(options));
  return std::move(job.graph);
}

Result<Program> plan_program(const CompileOptions& options) {
  POPRUN_ASSIGN(const Job job, run_passes(options));
  POPRUN_ASSIGN(Program program, plan_graph(job.graph, options));
  program.mutable_notes()->Add(job.notes.begin(), job.notes.end());
  return program;
}

Result<Program> compile_graph(const Graph& graph, const CompileOptions& options) {
  POPRUN_TRY(verify_operations(graph));
  POPRUN_ASSIGN(Program program, plan_graph(graph, options));
  POPRUN_TRY(check_fits(program));
  return program;
}

Result<Program> compile(const CompileOptions& options) {
  POPRUN_ASSIGN(Program program, plan_program(options));
  POPRUN_TRY(check_fits(program));
  return program;
}

}  // namespace poprun
