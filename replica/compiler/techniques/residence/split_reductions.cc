#include "replica/compiler/techniques/residence/split_reductions.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "replica/machine/operations.h"
#include "replica/ops/face/kinds.h"

namespace poprun {
namespace {

bool reduces(const Operation& operation) {
  const std::optional<AllReduce> all = AllReduce::from(operation);
  return (all && !all->in_background) || ReduceScatter::is(operation);
}

class SplitReductions {
 public:
  SplitReductions(Region& region, const std::set<TensorId>& off_chip) : region_(region), off_chip_(off_chip) {}

  void run() {
    for (Operation& operation : region_.operations) {
      release(operation);
      if (reduces(operation)) {
        split(operation);
      } else if (joins_slices(operation)) {
        const TensorId whole = operation.outputs[0];
        for (const TensorId slice : operation.inputs) {
          key_of_[slice] = whole;
        }
        waiting_[whole].join = std::move(operation);
      } else {
        operations_.push_back(std::move(operation));
      }
    }
    while (!waiting_.empty()) {
      append(waiting_.begin());
    }
    region_.operations = std::move(operations_);
  }

 private:
  /// Operations that wait until something uses their tensors.
  struct Waiting {
    std::optional<Operation> join;
    std::optional<Operation> reduction;
  };

  using Waits = std::map<TensorId, Waiting>;

  [[nodiscard]] bool joins_slices(const Operation& operation) const {
    return operation.kind == kinds::kConcat &&
           std::ranges::all_of(operation.inputs, [this](TensorId id) { return off_chip_.contains(id); });
  }

  /// Appends the waiting operations whose tensors `next` uses. A join that `next` reduces continues to wait. A called
  /// function may write slices, so no join waits beyond a call.
  void release(const Operation& next) {
    for (const auto* tensors : {&next.inputs, &next.outputs}) {
      for (const TensorId id : *tensors) {
        const auto key = key_of_.find(id);
        const auto found = waiting_.find(key == key_of_.end() ? id : key->second);
        if (found == waiting_.end()) {
          continue;
        }
        const bool reduces_join = reduces(next) && id == found->first && !found->second.reduction;
        if (!reduces_join) {
          append(found);
        }
      }
    }
    if (Call::from(next)) {
      for (auto one = waiting_.begin(); one != waiting_.end();) {
        one = one->second.join ? append(one) : std::next(one);
      }
    }
  }

  Waits::iterator append(Waits::iterator one) {
    for (std::optional<Operation>* operation : {&one->second.join, &one->second.reduction}) {
      if (*operation) {
        operations_.push_back(*std::move(*operation));
      }
    }
    return waiting_.erase(one);
  }

  void split(const Operation& operation) {
    const Operation empty{operation.kind, {}, {}, operation.attributes, operation.origin};
    Operation rest = empty;
    for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
      const TensorId tensor = operation.inputs[k];
      const TensorId result = operation.outputs[k];
      const bool is_own = off_chip_.contains(tensor) || waiting_.contains(tensor);
      Operation& part = is_own ? reduction_of(tensor, empty) : rest;
      part.inputs.push_back(tensor);
      part.outputs.push_back(result);
      if (is_own) {
        key_of_[result] = tensor;
      }
    }
    if (!rest.inputs.empty()) {
      operations_.push_back(std::move(rest));
    }
  }

  /// Returns the reduction that waits for uses of `tensor`, at first `empty`.
  Operation& reduction_of(TensorId tensor, const Operation& empty) {
    std::optional<Operation>& reduction = waiting_[tensor].reduction;
    return reduction ? *reduction : reduction.emplace(empty);
  }

  Region& region_;
  const std::set<TensorId>& off_chip_;
  std::vector<Operation> operations_;
  Waits waiting_;                        ///< Keyed by reduced tensor.
  std::map<TensorId, TensorId> key_of_;  ///< The key for each slice and each result.
};

}  // namespace

void split_reductions(Region& region, const std::set<TensorId>& off_chip) {
  SplitReductions(region, off_chip).run();
}

}  // namespace poprun
