#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "replica/compiler/job/pass.h"
#include "replica/machine/operations.h"
#include "replica/ops/face/kinds.h"

/// Adds up the gradients of each parameter's uses, beginning with the last use. Then, before the update, reduces
/// gradients to their mean or sum over the replicas, and running statistics and metrics to their means.
namespace poprun::passes::exchange {
namespace {

constexpr std::string_view kName = "exchange";

/// Returns whether the sum of the gradients of a parameter's uses is written to the first use's accumulator, by the
/// last addition. This accumulator has the parameter's placement, so the update needs one fewer gradient tensor. Adding
/// in place is impossible without accumulation, because parameters may then share a gradient. It is also impossible
/// with stochastic rounding: random draws depend on names, so the sum needs a separate name.
bool adds_in_place(const CompileOptions& options) {
  return options.gradient_accumulation > 1 && !options.precision.stochastic_rounding;
}

TensorId add_in_place(Builder& update, TensorId sum, TensorId first_use) {
  update.append({kinds::kAccumulate, {first_use, sum}, {first_use}, {{"mean", std::int64_t{0}}}});
  return first_use;
}

/// Adds the gradients of several uses. The sum gets the name of the first gradient, which is renamed.
TensorId add_uses(Builder& update, const std::vector<TensorId>& uses, bool in_place) {
  Graph& graph = update.graph();
  const std::string name = graph.tensor(uses[0]).name;
  TensorId sum = uses[0];
  std::size_t number = uses.size();
  for (auto use = uses.begin() + 1; use != uses.end(); ++use) {
    if (in_place && use + 1 == uses.end()) {
      sum = add_in_place(update, sum, *use);
      break;
    }
    while (graph.has(fmt::format("{}.{}", name, number))) {
      ++number;
    }
    sum = update.add_one(kinds::kAdd, {sum, *use}, {}, fmt::format("{}.{}", name, number));
    graph.set_role(sum, Role::kGradient);
    if (graph.tensor(*use).keeps_f32) {
      graph.keep_f32(sum);
    }
  }
  graph.swap_names(sum, uses[0]);
  return sum;
}

/// Returns one gradient per parameter.
std::vector<ParameterGradient> totals(Builder& update, const std::vector<ParameterGradient>& all, bool in_place) {
  std::vector<ParameterGradient> found;
  for (auto it = all.begin(); it != all.end();) {
    const auto end =
        std::find_if(it, all.end(), [&](const ParameterGradient& other) { return other.parameter != it->parameter; });
    std::vector<TensorId> uses;
    std::transform(it, end, std::back_inserter(uses), [](const auto& use) { return use.gradient; });
    found.push_back({it->parameter, uses.size() == 1 ? uses[0] : add_uses(update, uses, in_place)});
    it = end;
  }
  return found;
}

bool reduces_every_micro_batch(const CompileOptions& options) {
  return options.reduces_every_micro_batch && options.gradient_accumulation > 1;
}

std::set<TensorId> read_elsewhere(const Region& region) {
  std::set<TensorId> read;
  for (const Operation& operation : region.operations) {
    if (operation.kind != kinds::kAccumulate) {
      read.insert(operation.inputs.begin(), operation.inputs.end());
    }
  }
  return read;
}

/// Averages gradients over the replicas before they are accumulated. If other operations also read a gradient, averages
/// a copy of it.
void reduce_before_accumulating(Graph& graph, Place micro_batch) {
  const std::set<TensorId> others = read_elsewhere(graph.at(micro_batch));
  std::map<TensorId, TensorId> reduced;
  std::vector<Operation> operations;
  for (Operation operation : graph.at(micro_batch).operations) {
    if (operation.kind == kinds::kAccumulate) {
      const TensorId gradient = operation.inputs[1];
      const auto [found, is_new] = reduced.try_emplace(gradient, gradient);
      if (is_new && others.contains(gradient)) {
        Tensor mean = graph.tensor(gradient);
        mean.name += ".mean";
        found->second = graph.add_tensor(std::move(mean));
        operations.push_back(Copy{{gradient}, {found->second}}.operation());
        operations.back().origin = operation.origin;
      }
      if (is_new) {
        operations.push_back(AllReduce{Reduction::kMean, false, {found->second}}.operation());
        operations.back().origin = operation.origin;
      }
      operation.inputs[1] = found->second;
    }
    operations.push_back(std::move(operation));
  }
  graph.at(micro_batch).operations = std::move(operations);
}

Status run(const CompileOptions& options, Job& job) {
  TrainingStep& step = *job.training;
  Builder update(job.graph, step.update, "");
  step.gradients = totals(update, step.gradients, adds_in_place(options));
  std::vector<TensorId> exchanged;
  std::set<TensorId> seen;
  const bool every = reduces_every_micro_batch(options);
  if (every) {
    reduce_before_accumulating(job.graph, step.micro_batch);
  }
  for (const ParameterGradient& pair : step.gradients) {
    // Parameters that are added to each other share one gradient, which is exchanged once.
    if (!every && seen.insert(pair.gradient).second) {
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

/// Returns the sum that is added to the accumulator of a parameter's first use, or nothing unless there is exactly one
/// such sum.
std::optional<TensorId> added_to(const Writers& update, TensorId first_use) {
  std::optional<TensorId> sum;
  for (const Operation* operation : update.of(first_use)) {
    if (operation->kind != kinds::kAccumulate) {
      continue;
    }
    if (sum || operation->inputs.at(0) != first_use || operation->attributes.integer("mean") != 0) {
      return std::nullopt;
    }
    sum = operation->inputs.at(1);
  }
  return sum;
}

/// Returns whether `gradient` is the sum ((a + b) + c) + .. of `uses` in that order.
bool is_sum_of(const Writers& update, TensorId gradient, std::vector<TensorId> uses) {
  if (uses.size() > 1 && gradient == uses.back()) {
    const std::optional<TensorId> others = added_to(update, gradient);
    if (!others) {
      return false;
    }
    gradient = *others;
    uses.pop_back();
  }
  while (uses.size() > 1) {
    const auto made = std::ranges::find(update.of(gradient), kinds::kAdd, &Operation::kind);
    if (made == update.of(gradient).end() || (*made)->inputs.at(1) != uses.back()) {
      return false;
    }
    gradient = (*made)->inputs[0];
    uses.pop_back();
  }
  return gradient == uses.at(0);
}

/// Checks that every parameter has one gradient, the sum of the gradients of its uses.
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
    return pass_bug(kName, after.graph, uses.begin()->first, "no longer has a gradient");
  }
  return {};
}

/// Checks that each accumulated gradient is averaged over the replicas exactly once before its accumulation.
Status verify_micro_batch(const Job& after) {
  const Graph& graph = after.graph;
  std::map<TensorId, int> reduced;
  for (const Operation& operation : graph.at(after.training->micro_batch).operations) {
    if (const auto exchange = AllReduce::from(operation)) {
      for (const TensorId id : exchange->tensors) {
        reduced[id] += exchange->reduction == Reduction::kMean ? 1 : 2;
      }
    } else if (operation.kind == kinds::kAccumulate && reduced[operation.inputs[1]] != 1) {
      return pass_bug(kName, graph, operation.inputs[1],
                      "is not averaged over the replicas exactly once before it is accumulated");
    }
  }
  return {};
}

/// Checks that exactly the values on which the replicas must agree are reduced, each once and with the right reduction.
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
  if (reduces_every_micro_batch(options)) {
    POPRUN_TRY(verify_micro_batch(after));
  } else {
    for (const ParameterGradient& pair : step.gradients) {
      wanted[pair.gradient] = {options.gradients_summed ? Reduction::kSum : Reduction::kMean};
    }
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
                      wanted[id].empty() ? "is reduced over the replicas, but must not be"
                      : sum              ? "is not summed over the replicas exactly once"
                                         : "is not averaged over the replicas exactly once");
    }
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, in_training, run, verify};
}

}  // namespace poprun::passes::exchange
