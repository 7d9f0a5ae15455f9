#include <algorithm>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "replica/compiler/passes/pass.h"
#include "replica/machine/operations.h"

/// The gradients of a parameter's uses are added, last use first; then gradients become their mean
/// or sum over the replicas, and running statistics and metrics their means, before the update.
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
    if (graph.tensor(*use).keeps_f32) {
      graph.keep_f32(sum);
    }
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

Status run(const CompileOptions& options, Job& job) {
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
  if (options.gradients_summed) {
    update.append(AllReduce{Reduction::kSum, false, std::move(exchanged)}.operation());
    exchanged.clear();
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

/// Everything that replicas must agree on is reduced over them as it must be, once, and nothing
/// else is.
Status verify(const CompileOptions& options, const Job& before, const Job& after) {
  POPRUN_TRY(verify_totals(before, after));
  const Graph& graph = after.graph;
  const TrainingStep& step = *after.training;
  std::map<TensorId, std::vector<Reduction>> reduced;
  for (const Operation& operation : graph.at(step.update).operations) {
    if (const auto exchange = AllReduce::from(operation)) {
      for (const TensorId id : exchange->tensors) {
        reduced[id].push_back(exchange->reduction);
      }
    }
  }
  std::map<TensorId, std::vector<Reduction>> wanted{{step.metrics, {Reduction::kMean}}};
  for (const ParameterGradient& pair : step.gradients) {
    wanted[pair.gradient] = {options.gradients_summed ? Reduction::kSum : Reduction::kMean};
  }
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    if (graph.tensors()[t].role == Role::kBuffer) {
      wanted[TensorId{t}] = {Reduction::kMean};
    }
  }
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    const TensorId id{t};
    if (reduced[id] != wanted[id]) {
      const bool sum = wanted[id] == std::vector{Reduction::kSum};
      return pass_bug(kName, graph, id,
                      wanted[id].empty() ? "is reduced over the replicas"
                      : sum              ? "is not summed over the replicas exactly once"
                                         : "is not averaged over the replicas exactly once");
    }
  }
  return {};
}

}  // namespace

Pass exchange_pass() {
  return {kName, in_training, run, verify};
}

}  // namespace poprun
