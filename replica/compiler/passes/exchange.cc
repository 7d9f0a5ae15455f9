#include <algorithm>
#include <iterator>

#include "replica/compiler/passes/pass.h"
#include "replica/machine/operations.h"

/// Gradients, running statistics and metrics become their means over the replicas, in one exchange
/// before the update.
namespace poprun {
namespace {

constexpr std::string_view kName = "exchange";

Status run(const CompileOptions& /*options*/, Job& job) {
  const TrainingStep& step = *job.training;
  std::vector<TensorId> exchanged;
  std::set<TensorId> seen;
  for (const ParameterGradient& pair : step.gradients) {
    // The terms of a sum share one gradient; it is exchanged once.
    if (seen.insert(pair.gradient).second) {
      exchanged.push_back(pair.gradient);
    }
  }
  std::ranges::copy(tensors_by_name(job.graph, {Role::kBuffer}), std::back_inserter(exchanged));
  exchanged.push_back(step.metrics);
  job.graph.at(step.update)
      .operations.push_back(AllReduce{Reduction::kMean, false, std::move(exchanged)}.operation());
  return {};
}

/// Everything that replicas must agree on is averaged over them, once, and nothing else is.
Status verify(const CompileOptions& /*options*/, const Job& /*before*/, const Job& after) {
  const Graph& graph = after.graph;
  const TrainingStep& step = *after.training;
  std::multiset<TensorId> averaged;
  for (const Operation& operation : graph.at(step.update).operations) {
    const auto reduction = AllReduce::from(operation);
    if (reduction && reduction->reduction == Reduction::kMean) {
      averaged.insert(reduction->tensors.begin(), reduction->tensors.end());
    }
  }
  std::set<TensorId> wanted{step.metrics};
  for (const ParameterGradient& pair : step.gradients) {
    wanted.insert(pair.gradient);
  }
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    if (graph.tensors()[t].role == Role::kBuffer) {
      wanted.insert(TensorId{t});
    }
  }
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    if (averaged.count(TensorId{t}) != wanted.count(TensorId{t})) {
      return pass_bug(kName, graph, TensorId{t},
                      wanted.contains(TensorId{t})
                          ? "is not averaged over the replicas exactly once"
                          : "is averaged over the replicas");
    }
  }
  return {};
}

}  // namespace

Pass exchange_pass() {
  return {kName, in_training, run, verify};
}

}  // namespace poprun
