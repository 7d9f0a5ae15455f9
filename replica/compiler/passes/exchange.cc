#include <algorithm>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "replica/compiler/passes/pass.h"
#include "replica/machine/operations.h"

/// The gradients of a parameter's uses are added, last use first; then gradients, running
/// statistics and metrics become their means over the replicas, in one exchange before the update.
namespace poprun {
namespace {

constexpr std::string_view kName = "exchange";

/// Adds the gradients of several uses. Their sum takes the name of the first of them, which is
/// numbered instead.
TensorId add_uses(Builder& update, const std::vector<TensorId>& uses) {
  Graph& graph = update.graph();
  const std::string name = graph.tensor(uses[0]).name;
  TensorId sum = uses[0];
  std::size_t number = uses.size();
  for (auto use = uses.begin() + 1; use != uses.end(); ++use) {
    while (graph.has(fmt::format("{}.{}", name, number))) {
      ++number;
    }
    sum = update.add_one("add", {sum, *use}, {}, fmt::format("{}.{}", name, number));
    graph.set_role(sum, Role::kGradient);
  }
  graph.swap_names(sum, uses[0]);
  return sum;
}

/// One gradient for each parameter.
std::vector<ParameterGradient> totals(Builder& update, const std::vector<ParameterGradient>& all) {
  std::vector<ParameterGradient> found;
  for (auto it = all.begin(); it != all.end();) {
    const auto end = std::find_if(it, all.end(), [&](const ParameterGradient& other) {
      return other.parameter != it->parameter;
    });
    std::vector<TensorId> uses;
    std::transform(it, end, std::back_inserter(uses), [](const auto& use) { return use.gradient; });
    found.push_back({it->parameter, uses.size() == 1 ? uses[0] : add_uses(update, uses)});
    it = end;
  }
  return found;
}

Status run(const CompileOptions& /*options*/, Job& job) {
  TrainingStep& step = *job.training;
  Builder update(job.graph, step.update, "");
  step.gradients = totals(update, step.gradients);
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
  update.append(AllReduce{Reduction::kMean, false, std::move(exchanged)}.operation());
  return update.status();
}

/// Whether `gradient` is ((a + b) + c) + .. of `uses`, in that order.
bool is_sum_of(const Writers& update, TensorId gradient, std::vector<TensorId> uses) {
  while (uses.size() > 1) {
    const auto made = std::ranges::find(update.of(gradient), "add", &Operation::kind);
    if (made == update.of(gradient).end() || (*made)->inputs.at(1) != uses.back()) {
      return false;
    }
    gradient = (*made)->inputs[0];
    uses.pop_back();
  }
  return gradient == uses.at(0);
}

/// Every parameter has one gradient, the sum of those of its uses.
Status verify_totals(const Job& before, const Job& after) {
  std::map<TensorId, std::vector<TensorId>> uses;
  for (const ParameterGradient& use : before.training->gradients) {
    uses[use.parameter].push_back(use.gradient);
  }
  const Writers update(after.graph, after.training->update);
  for (const ParameterGradient& total : after.training->gradients) {
    const auto own = uses.extract(total.parameter);
    if (own.empty()) {
      return pass_bug(kName, after.graph, total.parameter, "has two gradients");
    }
    if (!is_sum_of(update, total.gradient, own.mapped())) {
      return pass_bug(kName, after.graph, total.gradient,
                      "is not the sum of the gradients of its parameter's uses, last use first");
    }
  }
  if (!uses.empty()) {
    return pass_bug(kName, after.graph, uses.begin()->first, "has lost its gradient");
  }
  return {};
}

/// Everything that replicas must agree on is averaged over them, once, and nothing else is.
Status verify(const CompileOptions& /*options*/, const Job& before, const Job& after) {
  POPRUN_TRY(verify_totals(before, after));
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
