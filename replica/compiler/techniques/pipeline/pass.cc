#include "replica/compiler/job/pass.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/compiler/techniques/pipeline/pipeline.h"
#include "replica/machine/machine.h"
#include "replica/machine/operations.h"

/// Cuts the training step and the evaluation into scheduled parts. The plain job is a pipeline of one stage.
namespace poprun::passes::pipeline {
namespace {

constexpr std::string_view kName = "pipeline";

/// Returns the percentage of a step during which stages of equal length are busy.
double utilisation(std::int64_t micro_batches, std::int64_t stages) {
  return 100.0 * static_cast<double>(micro_batches) / static_cast<double>(micro_batches + stages - 1);
}

Status run(const CompileOptions& options, Job& job) {
  const Schedule schedule = schedule_of(options.pipeline);
  const auto stages = static_cast<std::int64_t>(job.ipu_of_stage.size());
  const std::int64_t micro_batches = options.gradient_accumulation;
  const std::set<std::uint32_t> ipus(job.ipu_of_stage.begin(), job.ipu_of_stage.end());
  const bool overlaps = schedule == Schedule::kGrouped || schedule == Schedule::kInterleaved;
  if (job.training && overlaps && ipus.size() > 1 && micro_batches < stages) {
    job.notes.push_back(
        {"pipeline.few-micro-batches",
         fmt::format("with {}{}, {} equal stages would be busy for {:.1f} % of a step; with {}, they would be busy for "
                     "{:.1f} %",
                     options.compute_batches > 1 ? "compute batches in a step = " : "training.gradient-accumulation = ",
                     micro_batches, stages, utilisation(micro_batches, stages), 8 * stages,
                     utilisation(8 * stages, stages)),
         {{"micro-batches", micro_batches}, {"stages", stages}}});
  }
  if (!job.training && schedule == Schedule::kInterleaved && stages > 1) {
    job.notes.push_back({"option.no-effect",
                         "in inference, pipeline.schedule = interleaved is the same as grouped: there are no backward "
                         "passes to alternate with forward passes",
                         {{"option", "pipeline.schedule"}}});
  }
  return make_pipeline(job, schedule);
}

bool computes(const Operation& operation) {
  return find_machine_operation(operation.kind) == nullptr;
}

std::map<std::string, int> work_of(const Graph& graph) {
  std::map<std::string, int> work;
  for (const Function& function : graph.functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        if (computes(operation)) {
          ++work[operation.kind + " " + to_text(operation.attributes)];
        }
      }
    }
  }
  return work;
}

Status on_one_ipu(const Graph& graph, const Operation& operation) {
  for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
    for (const TensorId id : *tensors) {
      if (graph.tensor(id).ipu != graph.tensor(operation.outputs[0]).ipu) {
        return pass_bug(kName, graph, id,
                        fmt::format("is on IPU {}, but {} of '{}' runs on IPU {}", graph.tensor(id).ipu, operation.kind,
                                    graph.tensor(operation.outputs[0]).name, graph.tensor(operation.outputs[0]).ipu));
      }
    }
  }
  return {};
}

/// Checks that a host function calls each part once per micro-batch, in order. Adds the parts to `called`.
Status verify_calls(const Function& function, std::int64_t micro_batches, std::set<std::string>& called) {
  std::map<std::string, std::int64_t> next;
  for (const Region& region : function.regions) {
    for (const Operation& operation : region.operations) {
      const std::optional<Call> call = Call::from(operation);
      if (!call) {
        continue;
      }
      if (call->micro_batch != next[call->function]) {
        return fail(ErrorCode::kBug,
                    fmt::format("pass {}: {} calls {} with micro-batch {} after {}", kName, function.name,
                                call->function, call->micro_batch, next[call->function] - 1));
      }
      next[call->function] += region.repeat;
    }
  }
  for (const auto& [name, count] : next) {
    called.insert(name);
    if (count != micro_batches) {
      return fail(ErrorCode::kBug, fmt::format("pass {}: {} calls {} {}, not {}", kName, function.name, name,
                                               counted(static_cast<std::uint64_t>(count), "time"), micro_batches));
    }
  }
  return {};
}

/// Checks that operations are as before, each on one IPU, and that each part is called once per micro-batch, in order.
Status verify(const CompileOptions& options, const Job& before, const Job& after) {
  if (work_of(before.graph) != work_of(after.graph)) {
    return fail(ErrorCode::kBug, fmt::format("pass {}: adds or drops operations", kName));
  }
  for (const Function& function : after.graph.functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        if (computes(operation)) {
          POPRUN_TRY(on_one_ipu(after.graph, operation));
        }
      }
    }
  }
  std::set<std::string> called;
  if (after.training) {
    POPRUN_TRY(
        verify_calls(after.graph.functions.at(after.training->begin.function), options.gradient_accumulation, called));
  }
  if (after.evaluation) {
    POPRUN_TRY(verify_calls(after.graph.functions.at(after.evaluation->function), options.evaluation_batches, called));
  }
  for (const Function& function : after.graph.functions) {
    if (!called.contains(function.name) && find_function(before.graph, function.name) == nullptr) {
      return fail(ErrorCode::kBug, fmt::format("pass {}: nothing calls {}", kName, function.name));
    }
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, always, run, verify};
}

}  // namespace poprun::passes::pipeline
