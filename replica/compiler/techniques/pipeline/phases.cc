#include "replica/compiler/techniques/pipeline/phases.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "replica/machine/machine.h"
#include "replica/machine/operations.h"

namespace poprun {
namespace {

void add_use(const Graph& graph, const Operation& operation, const std::set<TensorId>& variables, PhaseUse& use) {
  for (const TensorId id : operation.inputs) {
    if (variables.contains(id) && !use.writes.contains(id)) {
      use.reads.insert(id);
    }
  }
  for (const TensorId id : operation.outputs) {
    use.ipu = graph.tensor(id).ipu;
    if (variables.contains(id)) {
      use.writes.insert(id);
    }
  }
}

/// Indices of `train`'s regions that use a tensor. Region 0 is begin; uses in the update do not count.
struct Named {
  std::optional<std::size_t> first;  ///< The first region after begin.
  std::size_t last = 0;
  std::size_t last_written = 0;
};

class PhaseOrder {
 public:
  PhaseOrder(Graph& graph, const TrainingStep& step)
      : graph_(graph), step_(step), train_(graph.functions.at(step.begin.function).regions) {
    for (std::size_t r = 1; r < step.update.region; ++r) {
      add_region(train_[r], r);
    }
    for (std::size_t p = 0; p < step.phases.size(); ++p) {
      const std::size_t region = behind(step.phases, p).region;
      if (region < step.update.region && train_[region].repeat == 1) {
        slots_.push_back(region);
      }
    }
    slots_.push_back(step.update.region);
  }

  void run() {
    const std::vector<Operation> set_ups = take_set_ups();
    lift_update();
    for (const Operation& operation : set_ups) {
      train_[before_first_use(operation)].operations.push_back(operation);
    }
  }

 private:
  /// For one tensor, the last region to which operations of the update have moved: those that use the tensor (`named`),
  /// and those that write it.
  struct Placed {
    std::size_t named = 0;
    std::size_t written = 0;
  };

  /// For one tensor, the first region in which operations of the update use it (`named`), and the first in which they
  /// write it.
  struct Needed {
    std::size_t named = ~std::size_t{0};
    std::size_t written = ~std::size_t{0};
  };

  void add_region(const Region& region, std::size_t r) {
    for (const Operation& operation : region.operations) {
      add_operation(operation, r);
      if (const std::optional<Call> call = Call::from(operation)) {
        for (const Region& inner : find_function(graph_, call->function)->regions) {
          add_region(inner, r);
        }
      }
    }
  }

  void add_operation(const Operation& operation, std::size_t r) {
    for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
      for (const TensorId id : *tensors) {
        Named& named = named_[id];
        named.first = named.first.value_or(r);
        named.last = r;
        named.last_written = tensors == &operation.outputs ? r : named.last_written;
      }
    }
  }

  std::vector<Operation> take_set_ups() {
    std::vector<Operation> taken;
    std::vector<Operation> rest;
    for (const Operation& operation : train_[0].operations) {
      const bool is_constant = operation.inputs.empty() && find_machine_operation(operation.kind) == nullptr;
      const bool moves = is_constant && operation.outputs.size() == 1 &&
                         graph_.tensor(operation.outputs[0]).role == Role::kGradient &&
                         before_first_use(operation) > 0 && names_once(operation.outputs[0]);
      (moves ? taken : rest).push_back(operation);
    }
    train_[0].operations = std::move(rest);
    return taken;
  }

  [[nodiscard]] bool names_once(TensorId id) const {
    const auto names = [id](const Operation& operation) {
      return std::ranges::find(operation.inputs, id) != operation.inputs.end() ||
             std::ranges::find(operation.outputs, id) != operation.outputs.end();
    };
    return std::ranges::count_if(train_[0].operations, names) == 1;
  }

  /// Returns the region before the phase that first uses an operation's result, or 0 if another region uses it first.
  [[nodiscard]] std::size_t before_first_use(const Operation& operation) const {
    const auto named = named_.find(operation.outputs[0]);
    if (named == named_.end()) {
      return 0;
    }
    const bool is_phase = std::ranges::find(step_.phases, *named->second.first, &Place::region) != step_.phases.end();
    return is_phase ? *named->second.first - 1 : 0;
  }

  /// Returns the first region at or after `region` to which an operation of the update may move.
  [[nodiscard]] std::size_t slot_from(std::size_t region) const { return *std::ranges::lower_bound(slots_, region); }

  /// An operation of the update, or a part of an all-reduce.
  struct Moved {
    Operation operation;
    std::size_t source = 0;  ///< The operation's index in the update.
    std::size_t slot = 0;    ///< The region that it moves to.
  };

  void lift_update() {
    Region& update = train_[step_.update.region];
    std::vector<Moved> all = divided(update.operations);
    update.operations.clear();
    std::ranges::for_each(all, [this](Moved& moved) { raise(moved); });
    std::for_each(all.rbegin(), all.rend(), [this](Moved& moved) { lower(moved); });
    std::map<std::size_t, std::size_t> last;  // By region: the index in the update of the last operation moved there.
    for (Moved& moved : all) {
      std::vector<Operation>& there = train_[moved.slot].operations;
      const auto before = last.find(moved.slot);
      if (before != last.end() && before->second == moved.source) {
        there.back().inputs.push_back(moved.operation.inputs[0]);
        there.back().outputs.push_back(moved.operation.outputs[0]);
      } else {
        there.push_back(std::move(moved.operation));
      }
      last[moved.slot] = moved.source;
    }
  }

  static std::vector<Moved> divided(const std::vector<Operation>& update) {
    std::vector<Moved> all;
    for (std::size_t i = 0; i < update.size(); ++i) {
      const std::optional<AllReduce> reduced = AllReduce::from(update[i]);
      if (!reduced || reduced->in_background) {
        all.push_back({update[i], i});
        continue;
      }
      for (std::size_t k = 0; k < update[i].inputs.size(); ++k) {
        Moved& part = all.emplace_back(Moved{update[i], i});
        part.operation.inputs = {update[i].inputs[k]};
        part.operation.outputs = {update[i].outputs[k]};
      }
    }
    return all;
  }

  static bool may_move(const Operation& operation) {
    const std::optional<AllReduce> reduced = AllReduce::from(operation);
    return find_machine_operation(operation.kind) == nullptr || Copy::is(operation) ||
           (reduced && !reduced->in_background);
  }

  /// Moves an operation to the first region in which its inputs are final and its outputs are no longer used.
  void raise(Moved& moved) {
    const Operation& operation = moved.operation;
    moved.slot = may_move(operation) ? slots_.front() : step_.update.region;
    for (const TensorId id : operation.inputs) {
      moved.slot = std::max({moved.slot, slot_from(named_[id].last_written), placed_[id].written});
    }
    for (const TensorId id : operation.outputs) {
      moved.slot = std::max({moved.slot, slot_from(named_[id].last), placed_[id].named});
    }
    for (const TensorId id : operation.inputs) {
      placed_[id].named = std::max(placed_[id].named, moved.slot);
    }
    for (const TensorId id : operation.outputs) {
      placed_[id] = {moved.slot, moved.slot};
    }
  }

  /// Moves an operation, unless it changes a variable, to the last region that the following operations allow.
  void lower(Moved& moved) {
    const Operation& operation = moved.operation;
    const bool changes = std::ranges::any_of(operation.outputs, [this](TensorId id) {
      const Role role = graph_.tensor(id).role;
      return role == Role::kParameter || role == Role::kOptimizerState;
    });
    std::size_t needed = step_.update.region;
    for (const TensorId id : operation.inputs) {
      needed = std::min(needed, needed_[id].written);
    }
    for (const TensorId id : operation.outputs) {
      needed = std::min(needed, needed_[id].named);
    }
    moved.slot = changes ? moved.slot : needed;
    for (const TensorId id : operation.inputs) {
      needed_[id].named = std::min(needed_[id].named, moved.slot);
    }
    for (const TensorId id : operation.outputs) {
      needed_[id] = {moved.slot, moved.slot};
    }
  }

  Graph& graph_;
  const TrainingStep& step_;
  std::vector<Region>& train_;
  std::vector<std::size_t> slots_;  ///< Ascending; the update is the last.
  std::map<TensorId, Named> named_;
  std::map<TensorId, Placed> placed_;  ///< From preceding operations.
  std::map<TensorId, Needed> needed_;  ///< From following operations.
};

}  // namespace

PhaseUse use_in_phase(const Graph& graph, const Region& phase, const std::set<TensorId>& variables) {
  PhaseUse use;
  for (const Operation& operation : phase.operations) {
    const std::optional<Call> call = Call::from(operation);
    if (!call) {
      continue;
    }
    use.functions.insert(call->function);
    for (const Region& region : find_function(graph, call->function)->regions) {
      for (const Operation& inner : region.operations) {
        add_use(graph, inner, variables, use);
      }
    }
  }
  return use;
}

std::set<TensorId> used_in_one_phase(const Graph& graph, const std::vector<Place>& phases) {
  std::set<TensorId> all;
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    all.insert(TensorId{t});
  }
  std::map<TensorId, std::set<std::size_t>> regions;  // Regions that use a tensor.
  std::map<TensorId, std::set<std::size_t>> used_in;  // Phases that use a tensor.
  for (std::size_t p = 0; p < phases.size(); ++p) {
    const PhaseUse use = use_in_phase(graph, graph.at(phases[p]), all);
    for (const std::set<TensorId>* tensors : {&use.reads, &use.writes}) {
      for (const TensorId id : *tensors) {
        used_in[id].insert(p);
      }
    }
  }
  for (std::size_t r = 0; !phases.empty() && r < graph.functions[phases[0].function].regions.size(); ++r) {
    for (const Operation& operation : graph.at({phases[0].function, r}).operations) {
      for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
        for (const TensorId id : *tensors) {
          regions[id].insert(r);
        }
      }
    }
  }
  std::set<TensorId> found;
  for (const auto& [id, at] : used_in) {
    const std::size_t p = *at.begin();
    const bool is_near = std::ranges::all_of(
        regions[id], [&](std::size_t r) { return r + 1 == phases[p].region || r == behind(phases, p).region; });
    if (at.size() == 1 && is_near) {
      found.insert(id);
    }
  }
  return found;
}

Place behind(const std::vector<Place>& phases, std::size_t p) {
  return p + 1 < phases.size() ? beside(phases[p + 1], -1) : beside(phases[p], 1);
}

Place beside(Place place, int distance) {
  place.region = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(place.region) + distance);
  return place;
}

void order_phases(Graph& graph, const TrainingStep& step) {
  PhaseOrder(graph, step).run();
}

}  // namespace poprun
