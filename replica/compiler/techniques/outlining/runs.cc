#include "replica/compiler/techniques/outlining/runs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "replica/machine/operations.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/random_name.h"
#include "replica/ops/half/half_kernel.h"

namespace poprun {

std::vector<std::optional<std::size_t>> roots_of(const Graph& graph) {
  std::vector<std::set<std::size_t>> roots(graph.functions.size());
  const std::set<std::string> called = called_functions(graph);
  const auto visit = [&](const auto& self, std::size_t function, std::size_t root) -> void {
    if (!roots[function].insert(root).second) {
      return;
    }
    for (const Region& region : graph.functions[function].regions) {
      for (const Operation& operation : region.operations) {
        if (const std::optional<Call> call = Call::from(operation)) {
          const Function* callee = find_function(graph, call->function);
          self(self, static_cast<std::size_t>(callee - graph.functions.data()), root);
        }
      }
    }
  };
  for (std::size_t f = 0; f < graph.functions.size(); ++f) {
    if (!called.contains(graph.functions[f].name)) {
      visit(visit, f, f);
    }
  }
  std::vector<std::optional<std::size_t>> only(roots.size());
  for (std::size_t f = 0; f < roots.size(); ++f) {
    only[f] = roots[f].size() == 1 ? std::optional(*roots[f].begin()) : std::nullopt;
  }
  return only;
}

namespace {

/// Calls `visit` for each remote-buffer entry to which an operation refers. `visit` may change the entry.
void for_each_entry(Operation& operation, auto visit) {
  std::optional<Copy> copy = Copy::from(operation);
  if (!copy) {
    return;
  }
  for (std::vector<std::int64_t>* entries : {&copy->from_entries, &copy->to_entries}) {
    for (std::int64_t& entry : *entries) {
      if (entry != Copy::kWhole) {
        visit(entry);
      }
    }
  }
  operation.attributes = copy->operation().attributes;
}

bool is_on_one_ipu(const Graph& graph, const Operation& operation) {
  const std::uint32_t ipu = graph.tensor(operation.outputs.at(0)).ipu;
  const auto here = [&](TensorId id) { return graph.tensor(id).ipu == ipu; };
  return std::ranges::all_of(operation.inputs, here) && std::ranges::all_of(operation.outputs, here);
}

/// Returns an operation as text, without its tensors, entries and random-number keys.
std::string text_of(const Graph& graph, Operation operation) {
  for_each_entry(operation, [](std::int64_t& entry) { entry = 0; });
  std::string text = operation.kind;
  for (const auto& [name, value] : operation.attributes.values()) {
    const bool is_random = keys_random_numbers(name) && std::holds_alternative<std::string>(value);
    text += " " + (is_random ? name : to_text(Attributes{{name, value}}));
  }
  for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
    text += " >";
    for (const TensorId id : *tensors) {
      const Tensor& tensor = graph.tensor(id);
      text += fmt::format(" {}@{}", to_text(tensor.type), tensor.ipu);
      text += tensor.shard_of ? " of " + to_text(*tensor.shard_of) : "";
    }
  }
  return text;
}

class Search {
 public:
  explicit Search(const Graph& graph) : graph_(graph), roots_(roots_of(graph)) {}

  std::vector<EqualRuns> run() {
    for (std::size_t f = 0; f < graph_.functions.size(); ++f) {
      for (std::size_t r = 0; roots_[f] && r < graph_.functions[f].regions.size(); ++r) {
        region({f, r});
      }
    }
    std::vector<EqualRuns> all;
    for (auto& [pattern, equal] : by_pattern_) {
      if (equal.runs.size() > 1) {
        std::ranges::sort(equal.runs, {}, position);
        all.push_back(std::move(equal));
      }
    }
    std::ranges::sort(all, {}, [](const EqualRuns& equal) { return position(equal.runs.front()); });
    return all;
  }

 private:
  static std::tuple<std::size_t, std::size_t, std::size_t> position(const Run& run) {
    return {run.place.function, run.place.region, run.begin};
  }

  /// Returns false for operators that draw random numbers outside of micro-batches, because a call sets a micro-batch.
  [[nodiscard]] bool may_be_shared(Place place, const Operation& operation) const {
    if (const Operator* op = find_operator(operation.kind); op != nullptr) {
      return called_.contains(graph_.functions[place.function].name) || !reads_moment(*op, operation.attributes);
    }
    if (const std::optional<AllReduce> reduced = AllReduce::from(operation)) {
      return !reduced->in_background && is_on_one_ipu(graph_, operation);
    }
    const bool shards = Shard::is(operation) || ReduceScatter::is(operation) || AllGather::is(operation);
    const bool exchanges_rows = GatherRows::is(operation) || ScatterRows::is(operation) || OwnRows::is(operation);
    return (Copy::is(operation) || shards || exchanges_rows) && is_on_one_ipu(graph_, operation);
  }

  /// Divides a region into runs, at operations that cannot be shared and wherever a layer or its backward pass begins
  /// or ends.
  void region(Place place) {
    const std::vector<Operation>& operations = graph_.at(place).operations;
    std::size_t begin = 0;
    while (begin < operations.size()) {
      const auto [layer, stage, direction] = operations[begin].origin;
      const auto is_same_part = [&](const Origin& origin) {
        return origin.layer == layer &&
               (origin.direction == Direction::kBackward) == (direction == Direction::kBackward);
      };
      std::size_t end = begin;
      while (end < operations.size() && is_same_part(operations[end].origin) && may_be_shared(place, operations[end])) {
        ++end;
      }
      const Run run{place, begin, end};
      layer == kNoLayer ? repetitions(run) : add(run);
      begin = std::max(end, begin + 1);
    }
  }

  /// Adds the longest repetition in a run, and then the repetitions before and after it.
  void repetitions(const Run& run) {
    const std::vector<Operation>& operations = graph_.at(run.place).operations;
    std::vector<std::uint32_t> kinds;
    for (std::size_t o = run.begin; o < run.end; ++o) {
      kinds.push_back(number_of(operations[o]));
    }
    std::size_t best = 0;
    std::size_t best_begin = 0;
    std::size_t best_period = 0;
    for (std::size_t period = kLeastRun; period <= kinds.size() / 2; ++period) {
      // Number of operations, starting here, that are the same as the operation one period later.
      std::size_t same = 0;
      for (std::size_t at = kinds.size() - period; at-- > 0;) {
        same = kinds[at] == kinds[at + period] ? same + 1 : 0;
        const std::size_t covered = same < period ? 0 : (same / period + 1) * period;
        if (covered > best) {
          best = covered;
          best_begin = at;
          best_period = period;
        }
      }
    }
    if (best == 0) {
      return;
    }
    const std::size_t begin = run.begin + best_begin;
    repetitions({run.place, run.begin, begin});
    for (std::size_t at = begin; at < begin + best; at += best_period) {
      add({run.place, at, at + best_period});
    }
    repetitions({run.place, begin + best, run.end});
  }

  void add(const Run& run) {
    if (run.size() < kLeastRun) {
      return;
    }
    EqualRuns& equal = by_pattern_[pattern_of(run)];
    equal.runs.push_back(run);
    equal.root = *roots_[run.place.function];
  }

  std::vector<std::uint32_t> pattern_of(const Run& run) {
    std::vector<std::uint32_t> pattern{static_cast<std::uint32_t>(*roots_[run.place.function])};
    std::map<TensorId, std::uint32_t> locals;
    for (Operation& operation : operations_of(graph_, run).operations) {
      pattern.push_back(number_of(operation));
      for_each_entry(operation, [&](std::int64_t entry) { pattern.push_back(static_cast<std::uint32_t>(entry)); });
      for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
        for (const TensorId id : *tensors) {
          const auto next = static_cast<std::uint32_t>(locals.size());
          const std::uint32_t local = locals.try_emplace(id, next).first->second;
          pattern.push_back(graph_.tensor(id).is_remote() ? ~index_of(id) : local);
        }
      }
    }
    return pattern;
  }

  std::uint32_t number_of(const Operation& operation) {
    const auto next = static_cast<std::uint32_t>(numbers_.size());
    return numbers_.try_emplace(text_of(graph_, operation), next).first->second;
  }

  const Graph& graph_;
  std::vector<std::optional<std::size_t>> roots_;
  std::set<std::string> called_ = called_functions(graph_);
  std::map<std::string, std::uint32_t> numbers_;  ///< Operation numbers, keyed by text_of.
  std::map<std::vector<std::uint32_t>, EqualRuns> by_pattern_;
};

}  // namespace

RunOperations operations_of(const Graph& graph, const Run& run) {
  const auto begin = graph.at(run.place).operations.begin();
  RunOperations all{{begin + static_cast<std::ptrdiff_t>(run.begin), begin + static_cast<std::ptrdiff_t>(run.end)}};
  std::optional<std::int64_t> least;
  for (Operation& operation : all.operations) {
    for_each_entry(operation, [&](std::int64_t entry) { least = std::min(least.value_or(entry), entry); });
  }
  all.entry = least.value_or(0);
  for (Operation& operation : all.operations) {
    for_each_entry(operation, [&](std::int64_t& entry) { entry -= all.entry; });
  }
  return all;
}

std::vector<TensorId> tensors_of(const Graph& graph, const Run& run) {
  std::vector<TensorId> all;
  std::set<TensorId> seen;
  const std::vector<Operation>& operations = graph.at(run.place).operations;
  for (std::size_t o = run.begin; o < run.end; ++o) {
    for (const auto* tensors : {&operations[o].inputs, &operations[o].outputs}) {
      for (const TensorId id : *tensors) {
        if (seen.insert(id).second) {
          all.push_back(id);
        }
      }
    }
  }
  return all;
}

std::vector<EqualRuns> find_equal_runs(const Graph& graph) {
  return Search(graph).run();
}

}  // namespace poprun
