#include "replica/compiler/outlining/saving.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "replica/compiler/cost/cost.h"
#include "replica/compiler/mapping/plans.h"
#include "replica/compiler/mapping/product_layout.h"
#include "replica/compiler/tiles/demand.h"

namespace poprun {
namespace {

/// On tile 0, which has as much of a product as any other. What operators other than products
/// exchange depends on mappings and is left out, so this is rather too little.
Bytes code_of(const Graph& graph, const Operation& operation, const Device& device) {
  Bytes code = kControlCode;
  const std::optional<PlannedProduct> planned = plan_operation(graph, operation, device);
  if (planned) {
    const TileOperands held = operands_on(*planned->plan, 0);
    code += kVertexState;
    code += Bytes{code_to_receive(held.input) + code_to_receive(held.weights)};
    if (planned->plan->splits.reduction_depth() > 1) {
      code += Bytes{code_to_receive(held.partials)};
    }
  }
  return code;
}

/// Device time of a run's copies: those of its tensors for which `is_copied` holds, in one copy.
/// What only its region uses is taken for something that functions leave to each other.
template <typename IsCopied>
Cycles time_to_copy(const Graph& graph, const Reads& reads, Place place,
                    const std::vector<RunTensor>& run, const Device& device, IsCopied is_copied) {
  const std::size_t size = graph.at(place).operations.size();
  std::vector<LinkTransfer> transfers;
  for (const RunTensor& one : run) {
    if (is_copied(one) && !one.is_shared && !reads.only_in(place, 0, size, one.tensor)) {
      transfers.push_back({0, 0, graph.tensor(one.tensor).type.bytes()});
    }
  }
  return transfers.empty() ? Cycles{} : time_of_copy(device, 1, transfers).total();
}

}  // namespace

Workload::Workload(const Graph& graph, const Device& device, const ReplicaSystem& system)
    : graph_(graph), device_(device), system_(system), executions_(graph.functions.size()) {
  const std::set<std::string> called = called_functions(graph);
  const auto count = [&](const auto& self, std::size_t function, std::int64_t times) -> void {
    executions_[function] += times;
    for (const Region& region : graph.functions[function].regions) {
      for (const Operation& operation : region.operations) {
        if (const std::optional<Call> call = Call::from(operation)) {
          const Function* callee = find_function(graph, call->function);
          self(self, static_cast<std::size_t>(callee - graph.functions.data()),
               times * region.repeat);
        }
      }
    }
  };
  for (std::size_t f = 0; f < graph.functions.size(); ++f) {
    if (!called.contains(graph.functions[f].name)) {
      count(count, f, 1);
    }
  }
  const std::vector<std::optional<std::size_t>> roots = roots_of(graph);
  for (std::size_t f = 0; f < graph.functions.size(); ++f) {
    for (const Region& region : graph.functions[f].regions) {
      for (const Operation& operation : region.operations) {
        if (!roots[f] || operation.outputs.empty()) {
          continue;
        }
        busy_[{*roots[f], graph.tensor(operation.outputs[0]).ipu}] +=
            time_of(operation) * (executions_[f] * region.repeat);
      }
    }
  }
}

Cycles Workload::time_of(const Operation& operation) const {
  const std::optional<PlannedProduct> planned = plan_operation(graph_, operation, device_);
  return cost_of_operation(device_, system_, graph_, operation, planned ? &*planned : nullptr)
      .total();
}

Cycles Workload::busy(std::size_t root, std::uint32_t ipu) const {
  const auto found = busy_.find({root, ipu});
  return found == busy_.end() ? Cycles{} : found->second;
}

Saving saving_of(const Graph& graph, const EqualRuns& equal, const Reads& reads,
                 const Workload& workload, const Device& device) {
  const Run& first = equal.runs.front();
  const std::vector<Operation>& operations = graph.at(first.place).operations;
  Saving saving;
  saving.ipu = graph.tensor(operations[first.begin].outputs.at(0)).ipu;
  saving.operations = static_cast<std::int64_t>(first.size());
  saving.runs = std::ssize(equal.runs);
  Cycles of_one;
  for (std::size_t o = first.begin; o < first.end; ++o) {
    saving.code += code_of(graph, operations[o], device) * (saving.runs - 1);
    of_one += workload.time_of(operations[o]);
  }
  const std::vector<std::vector<RunTensor>> tensors = tensors_of(graph, reads, equal);
  for (std::size_t run = 0; run < tensors.size(); ++run) {
    const Place place = equal.runs[run].place;
    const std::int64_t times = workload.executions(place.function) * graph.at(place).repeat;
    saving.working += of_one * times;
    for (const bool RunTensor::*way : {&RunTensor::comes_in, &RunTensor::goes_out}) {
      const Cycles time = time_to_copy(graph, reads, place, tensors[run], device,
                                       [way](const RunTensor& one) { return one.*way; });
      saving.copies += time > Cycles{} ? kControlCode : Bytes{};
      saving.copying += time * times;
    }
  }
  return saving;
}

}  // namespace poprun
