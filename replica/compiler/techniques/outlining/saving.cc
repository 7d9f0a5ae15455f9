#include "replica/compiler/techniques/outlining/saving.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "replica/compiler/addresses/demand.h"
#include "replica/compiler/lives/liveness.h"
#include "replica/compiler/tiles/operation_time.h"
#include "replica/compiler/tiles/plans.h"
#include "replica/compiler/tiles/product_layout.h"

namespace poprun {
namespace {

/// Maximum number of pieces. More would save little, because the inputs of a single operation are always copied.
constexpr std::size_t kMostPieces = 8;

struct Used {
  struct Use {
    std::size_t operation = 0;  ///< Counted from the run's first operation.
    bool reads = false;
  };
  std::vector<Use> uses;
  Bytes bytes;
  bool is_read_after = false;  ///< The value that the run leaves in the tensor is read later.

  /// Returns whether piece [begin, end) reads a value that was computed before the piece and is still needed after it.
  [[nodiscard]] bool is_there_twice(std::size_t begin, std::size_t end) const {
    const auto from = [this](std::size_t operation) {
      return std::ranges::find_if(uses, [&](const Use& use) { return use.operation >= operation; });
    };
    const auto first = from(begin);
    const auto next = from(end);
    const bool comes_in = first != uses.end() && first->operation < end && first->reads;
    return comes_in && (next == uses.end() ? is_read_after : next->reads);
  }
};

class Cutting {
 public:
  Cutting(const Graph& graph, const EqualRuns& equal, const Reads& reads, const StepBytes& bytes, const Device& device)
      : graph_(graph), equal_(equal), bytes_(bytes), device_(device) {
    const Run& first = equal.runs.front();
    ipu_ = graph.tensor(graph.at(first.place).operations[first.begin].outputs.at(0)).ipu;
    find_uses(reads);
    find_needs();
  }

  /// Returns the ends of the pieces.
  std::vector<std::size_t> ends() const {
    const std::size_t size = equal_.runs.front().size();
    // Lowest peak of the first `end` operations in a given number of pieces, and where the last piece begins.
    struct Best {
      std::optional<Bytes> peak;
      std::size_t begin = 0;
    };
    std::vector<std::vector<Best>> best(1, std::vector<Best>(size + 1));
    best[0][0].peak = Bytes{};
    std::size_t fewest = 1;
    Bytes least{std::numeric_limits<std::int64_t>::max()};
    for (std::size_t pieces = 1; pieces <= kMostPieces; ++pieces) {
      std::vector<Best>& now = best.emplace_back(size + 1);
      for (std::size_t end = kLeastRun; end <= size; ++end) {
        for (std::size_t begin = 0; begin + kLeastRun <= end; ++begin) {
          const std::optional<Bytes>& before = best[pieces - 1][begin].peak;
          const Bytes peak = before ? std::max(*before, need_[begin][end]) : Bytes{};
          if (before && (!now[end].peak || peak < *now[end].peak)) {
            now[end] = {peak, begin};
          }
        }
      }
      if (now[size].peak && taken(pieces, *now[size].peak) < least) {
        least = taken(pieces, *now[size].peak);
        fewest = pieces;
      }
    }
    std::vector<std::size_t> all;
    for (std::size_t end = size, pieces = fewest; pieces > 0; --pieces) {
      all.insert(all.begin(), end);
      end = best[pieces][end].begin;
    }
    return all;
  }

 private:
  void find_uses(const Reads& reads) {
    std::vector<std::vector<TensorId>> same;  // For each tensor of a run, its counterparts in all runs.
    for (const Run& run : equal_.runs) {
      const std::vector<TensorId> tensors = tensors_of(graph_, run);
      same.resize(tensors.size());
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        same[t].push_back(tensors[t]);
      }
    }
    const Run& run = equal_.runs.front();
    std::map<TensorId, Used> all;
    for (std::size_t o = 0; o < run.size(); ++o) {
      const Operation& operation = graph_.at(run.place).operations[run.begin + o];
      for (const TensorId id : operation.inputs) {
        all[id].uses.push_back({o, true});
      }
      for (const TensorId id : operation.outputs) {
        all[id].uses.push_back({o, false});
      }
    }
    for (const std::vector<TensorId>& names : same) {
      const bool is_shared = std::ranges::all_of(names, [&](TensorId id) { return id == names.front(); });
      // Tensors that only the region uses pass from piece to piece without a copy.
      if (is_shared || reads.only_in(run.place, 0, graph_.at(run.place).operations.size(), names.front())) {
        continue;
      }
      Used& used = used_.emplace_back(std::move(all[names.front()]));
      used.bytes = graph_.tensor(names.front()).type.bytes();
      used.is_read_after = reads.after(run, names.front());
    }
  }

  void find_needs() {
    const std::size_t size = equal_.runs.front().size();
    need_.assign(size, std::vector<Bytes>(size + 1));
    for (std::size_t begin = 0; begin < size; ++begin) {
      Bytes there;
      for (std::size_t end = begin + 1; end <= size; ++end) {
        for (const Run& run : equal_.runs) {
          there = std::max(there, bytes_.at(run.place, run.begin + end - 1, ipu_));
        }
        Bytes twice;
        for (const Used& used : used_) {
          twice += used.is_there_twice(begin, end) ? used.bytes : Bytes{};
        }
        need_[begin][end] = there + twice;
      }
    }
  }

  [[nodiscard]] Bytes taken(std::size_t pieces, Bytes peak) const {
    const std::int64_t raised = (peak - bytes_.peak(ipu_)).count();
    const auto copies = static_cast<std::int64_t>((pieces + 1) * equal_.runs.size());
    return kControlCode * copies + Bytes{raised <= 0 ? 0 : ceil_div(raised, device_.tiles)};
  }

  const Graph& graph_;
  const EqualRuns& equal_;
  const StepBytes& bytes_;
  const Device& device_;
  std::uint32_t ipu_ = 0;
  std::vector<Used> used_;                ///< Tensors that are copied.
  std::vector<std::vector<Bytes>> need_;  ///< Indexed by begin and end of a piece.
};

/// Returns the bytes of an operation's code on tile 0, the tile with the most code for a product. This is an
/// underestimate, because it leaves out exchange code that depends on mappings.
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

/// Returns the time of a run's copies. Assumes that tensors used in only one region need no copy.
template <typename IsCopied>
Cycles time_to_copy(const Graph& graph, const Reads& reads, Place place, const std::vector<RunTensor>& run,
                    const Device& device, IsCopied is_copied) {
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

StepBytes::StepBytes(const Graph& graph, const Device& device, std::int64_t ipus) {
  const Liveness liveness = compute_liveness(graph);
  std::uint32_t step = 0;
  for (const Function& function : graph.functions) {
    std::vector<std::uint32_t>& regions = first_step_.emplace_back();
    for (const Region& region : function.regions) {
      regions.push_back(step);
      step += static_cast<std::uint32_t>(region.operations.size()) + (region.repeat > 1 ? 1U : 0U);
    }
  }
  by_step_.assign(static_cast<std::size_t>(ipus), std::vector<Bytes>(liveness.step_count + std::size_t{1}));
  for (std::size_t t = 0; t < liveness.lives.size(); ++t) {
    const Tensor& tensor = graph.tensors()[t];
    if (tensor.is_remote()) {
      continue;
    }
    for (const Span& span : liveness.lives[t].spans) {
      by_step_.at(tensor.ipu)[span.first] += tensor.type.bytes();
      by_step_.at(tensor.ipu)[span.last + 1] += tensor.type.bytes() * -1;
    }
  }
  for (std::vector<Bytes>& steps : by_step_) {
    for (std::size_t s = 1; s < steps.size(); ++s) {
      steps[s] += steps[s - 1];
    }
  }
  for_each_step(graph, [&](const Operation& operation, std::uint32_t at) {
    const std::optional<PlannedProduct> planned = plan_operation(graph, operation, device);
    if (planned) {
      by_step_.at(graph.tensor(operation.outputs[0]).ipu)[at] += planned->plan->temporary_bytes() * device.tiles;
    }
  });
}

Bytes StepBytes::at(Place place, std::size_t operation, std::uint32_t ipu) const {
  return by_step_.at(ipu).at(first_step_.at(place.function).at(place.region) + operation);
}

Bytes StepBytes::peak(std::uint32_t ipu) const {
  return *std::ranges::max_element(by_step_.at(ipu));
}

std::vector<EqualRuns> in_pieces(const Graph& graph, const EqualRuns& equal, const Reads& reads, const StepBytes& bytes,
                                 const Device& device) {
  std::vector<EqualRuns> pieces;
  std::size_t begin = 0;
  for (const std::size_t end : Cutting(graph, equal, reads, bytes, device).ends()) {
    EqualRuns& piece = pieces.emplace_back();
    piece.root = equal.root;
    for (const Run& run : equal.runs) {
      piece.runs.push_back({run.place, run.begin + begin, run.begin + end});
    }
    begin = end;
  }
  return pieces;
}

Workload::Workload(const Graph& graph, const Device& device, const ReplicaSystem& system)
    : graph_(graph), device_(device), system_(system), executions_(graph.functions.size()) {
  const std::set<std::string> called = called_functions(graph);
  const auto count = [&](const auto& self, std::size_t function, std::int64_t times) -> void {
    executions_[function] += times;
    for (const Region& region : graph.functions[function].regions) {
      for (const Operation& operation : region.operations) {
        if (const std::optional<Call> call = Call::from(operation)) {
          const Function* callee = find_function(graph, call->function);
          self(self, static_cast<std::size_t>(callee - graph.functions.data()), times * region.repeat);
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
  return cost_of_operation(device_, system_, graph_, operation, planned ? &*planned : nullptr).total();
}

Cycles Workload::busy(std::size_t root, std::uint32_t ipu) const {
  const auto found = busy_.find({root, ipu});
  return found == busy_.end() ? Cycles{} : found->second;
}

Saving saving_of(const Graph& graph, const EqualRuns& equal, const Reads& reads, const Workload& workload,
                 const Device& device) {
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
      const Cycles time =
          time_to_copy(graph, reads, place, tensors[run], device, [way](const RunTensor& one) { return one.*way; });
      saving.copies += time > Cycles{} ? kControlCode : Bytes{};
      saving.copying += time * times;
    }
  }
  return saving;
}

}  // namespace poprun
