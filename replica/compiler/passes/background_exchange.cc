#include <map>
#include <utility>

#include "replica/compiler/exchange/background.h"
#include "replica/compiler/passes/pass.h"
#include "replica/machine/operations.h"

/// Lets the gradients travel while backward goes on.
namespace poprun {
namespace {

constexpr std::string_view kName = "background-exchange";

bool applies(const CompileOptions& options) {
  return in_training(options) && options.gradient_bucket > Bytes{0};
}

Status run(const CompileOptions& options, Job& job) {
  if (options.gradient_accumulation > 1) {
    job.notes.emplace_back(
        "training.gradient-bucket has no effect with training.gradient-accumulation: gradients are "
        "complete only after the last micro-batch");
    return {};
  }
  if (job.ipu_of_stage.size() > 1) {
    job.notes.emplace_back(
        "training.gradient-bucket has no effect with several pipeline stages: each IPU exchanges "
        "its gradients once it has all of them");
    return {};
  }
  exchange_in_background(job.graph, job.training->micro_batch, job.training->update,
                         options.gradient_bucket);
  return {};
}

/// Times that a step reduces each tensor in each way.
std::map<std::pair<TensorId, Reduction>, int> reductions(const Job& job) {
  std::map<std::pair<TensorId, Reduction>, int> count;
  for (const Place place : {job.training->micro_batch, job.training->update}) {
    for (const Operation& operation : job.graph.at(place).operations) {
      if (const auto reduction = AllReduce::from(operation)) {
        for (const TensorId id : reduction->tensors) {
          ++count[{id, reduction->reduction}];
        }
      }
    }
  }
  return count;
}

/// The step reduces what it did, once each; nothing touches a tensor on its way; and all have
/// arrived when the step ends.
Status verify(const CompileOptions& /*options*/, const Job& before, const Job& after) {
  const Graph& graph = after.graph;
  if (reductions(before) != reductions(after)) {
    return fail(ErrorCode::kBug, "pass background-exchange: a step reduces different tensors");
  }
  std::set<TensorId> travelling;
  for (const Place place : {after.training->micro_batch, after.training->update}) {
    for (const Operation& operation : graph.at(place).operations) {
      const auto reduction = AllReduce::from(operation);
      if (AwaitAllReduces::is(operation)) {
        for (const TensorId id : operation.inputs) {
          travelling.erase(id);  // One that is not named has not arrived for liveness.
        }
      }
      for (const auto* ids : {&operation.inputs, &operation.outputs}) {
        for (const TensorId id : *ids) {
          if (travelling.contains(id)) {
            return pass_bug(kName, graph, id, "is used while it travels, by " + operation.kind);
          }
        }
      }
      if (reduction && reduction->in_background) {
        travelling.insert(reduction->tensors.begin(), reduction->tensors.end());
      }
    }
  }
  if (!travelling.empty()) {
    return pass_bug(kName, graph, *travelling.begin(), "has not arrived when the step ends");
  }
  return {};
}

}  // namespace

Pass background_exchange_pass() {
  return {kName, applies, run, verify, true};
}

}  // namespace poprun
