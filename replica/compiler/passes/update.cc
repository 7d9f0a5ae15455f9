#include "replica/compiler/passes/pass.h"
#include "replica/machine/operations.h"
#include "replica/program/host_contract.h"

/// The optimiser's update of every trained parameter, and what the host is told of the step.
namespace poprun {
namespace {

constexpr std::string_view kName = "update";

Status run(const CompileOptions& options, Job& job) {
  TrainingStep& step = *job.training;
  Builder update(job.graph, step.update, "");
  OptimizerOptions optimizer = options.optimizer;
  if (options.accumulation_kind == AccumulationKind::kMean) {
    optimizer.gradient_scale = 1.0 / static_cast<double>(options.gradient_accumulation);
  }
  optimizer.master_weights = options.precision.master_weights;
  if (!step.scalars.loss_scale) {
    optimizer.gradient_scale /= options.loss_scaling;
  }
  add_gradient_factor(update, optimizer, step.gradients, step.scalars);
  POPRUN_TRY(add_optimizer(update, optimizer, step.gradients, step.scalars));
  std::vector<TensorId> told = {step.metrics};
  if (step.scalars.loss_scale) {
    told.push_back(*step.scalars.factor);
  }
  update.append(StreamOut{name_of(JobStream::kStep), std::move(told)}.operation());
  return update.status();
}

/// A step writes every parameter that has a gradient once, after the exchange, and no other.
Status verify(const CompileOptions& /*options*/, const Job& /*before*/, const Job& after) {
  const Graph& graph = after.graph;
  const TrainingStep& step = *after.training;
  const Writers begin(graph, step.begin);
  const Writers body(graph, step.micro_batch);
  const Writers update(graph, step.update);
  std::set<TensorId> trained;
  for (const ParameterGradient& pair : step.gradients) {
    trained.insert(pair.parameter);
  }
  bool exchanged = false;
  for (const Operation& operation : graph.at(step.update).operations) {
    exchanged = exchanged || AllReduce::from(operation).has_value();
    for (const TensorId id : operation.outputs) {
      if (!exchanged && graph.tensor(id).role == Role::kParameter) {
        return pass_bug(kName, graph, id, "is updated before the exchange");
      }
    }
  }
  for (const TensorId id : tensors_by_name(graph, {Role::kParameter})) {
    if (update.of(id).size() != trained.count(id) || !begin.of(id).empty() ||
        !body.of(id).empty()) {
      return pass_bug(kName, graph, id,
                      trained.contains(id) ? "is not updated exactly once per step"
                                           : "is not trained, yet is written");
    }
  }
  return {};
}

}  // namespace

Pass update_pass() {
  return {kName, in_training, run, verify};
}

}  // namespace poprun
