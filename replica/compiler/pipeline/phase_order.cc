#include "replica/compiler/pipeline/phase_order.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "replica/compiler/pipeline/phase_use.h"
#include "replica/machine/machine.h"
#include "replica/machine/operations.h"

namespace poprun {
namespace {

/// The regions of `train` that name a tensor, up to the update. Regions are indices, and 0 is
/// begin.
struct Named {
  std::optional<std::size_t> first;  ///< After begin.
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
  /// Tensors that operations of the update name, by the region that has these operations now.
  struct Placed {
    std::size_t named = 0;
    std::size_t written = 0;
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

  /// Takes the first values of gradients out of begin.
  std::vector<Operation> take_set_ups() {
    std::vector<Operation> taken;
    std::vector<Operation> rest;
    for (const Operation& operation : train_[0].operations) {
      const bool is_constant =
          operation.inputs.empty() && find_machine_operation(operation.kind) == nullptr;
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

  /// The region before the phase that names an operation's result first; 0 if none does.
  [[nodiscard]] std::size_t before_first_use(const Operation& operation) const {
    const auto named = named_.find(operation.outputs[0]);
    if (named == named_.end()) {
      return 0;
    }
    const bool is_phase =
        std::ranges::find(step_.phases, *named->second.first, &Place::region) != step_.phases.end();
    return is_phase ? *named->second.first - 1 : 0;
  }

  /// The first region from `region` on that an operation of the update may move to.
  [[nodiscard]] std::size_t slot_from(std::size_t region) const {
    return *std::ranges::lower_bound(slots_, region);
  }

  void lift_update() {
    Region& update = train_[step_.update.region];
    std::vector<Operation> all = std::move(update.operations);
    update.operations.clear();
    for (Operation& operation : all) {
      if (const auto reduced = AllReduce::from(operation); reduced && !reduced->in_background) {
        divide(operation);
        continue;
      }
      const bool may_move =
          find_machine_operation(operation.kind) == nullptr || Copy::is(operation);
      place(std::move(operation), may_move ? slot_of(operation) : step_.update.region);
    }
  }

  /// The first region in which everything is there that an operation reads, and nothing reads any
  /// more what it writes.
  [[nodiscard]] std::size_t slot_of(const Operation& operation) {
    std::size_t slot = slots_.front();
    for (const TensorId id : operation.inputs) {
      slot = std::max({slot, slot_from(named_[id].last_written), placed_[id].written});
    }
    for (const TensorId id : operation.outputs) {
      slot = std::max({slot, slot_from(named_[id].last), placed_[id].named});
    }
    return slot;
  }

  void place(Operation operation, std::size_t slot) {
    for (const TensorId id : operation.inputs) {
      placed_[id].named = std::max(placed_[id].named, slot);
    }
    for (const TensorId id : operation.outputs) {
      placed_[id] = {slot, slot};
    }
    train_[slot].operations.push_back(std::move(operation));
  }

  void divide(const Operation& reduction) {
    const Operation none{reduction.kind, {}, {}, reduction.attributes, reduction.origin};
    std::map<std::size_t, Operation> parts;
    for (std::size_t k = 0; k < reduction.inputs.size(); ++k) {
      Operation one = none;
      one.inputs = {reduction.inputs[k]};
      one.outputs = {reduction.outputs[k]};
      Operation& part = parts.try_emplace(slot_of(one), none).first->second;
      part.inputs.push_back(one.inputs[0]);
      part.outputs.push_back(one.outputs[0]);
    }
    for (auto& [slot, part] : parts) {
      place(std::move(part), slot);
    }
  }

  Graph& graph_;
  const TrainingStep& step_;
  std::vector<Region>& train_;
  std::vector<std::size_t> slots_;  ///< Rising; the update is the last.
  std::map<TensorId, Named> named_;
  std::map<TensorId, Placed> placed_;
};

}  // namespace

void order_phases(Graph& graph, const TrainingStep& step) {
  PhaseOrder(graph, step).run();
}

}  // namespace poprun
