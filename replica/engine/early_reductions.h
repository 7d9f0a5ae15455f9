#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "replica/base/error.h"
#include "replica/engine/device_memory.h"
#include "replica/graph/types.h"
#include "replica/ports/communicator.h"
#include "replica/program/program.h"

namespace poprun {

/// Reduces gradients while the backward pass goes on, before the Program's all-reduce: each replica then keeps only the
/// part that it owns, and gives the rest of the gradient's memory back. This changes neither results nor device times,
/// only the memory and the caches of this machine. Gradients are collected until a meeting of the replicas pays.
///
///   backward   | g4 complete | g3 complete, reduce both | g2 complete | ..
///   kept         all of g4     own parts of g4 and g3     all of g2
class EarlyReductions {
 public:
  /// Reduces nothing.
  EarlyReductions() = default;

  struct Options {
    std::size_t batch_bytes = 0;  ///< A reduction is due when so many bytes are complete.
    bool poison = false;          ///< Fill the parts that others own with NaN instead of giving them back.
  };

  /// Reduces the divisible tensors of the Program among `owners`. All arguments must outlive this object; `types` is
  /// indexed by tensor.
  EarlyReductions(const Program& program, const std::vector<TensorType>& types, const HostImages& images,
                  Communicator& owners, const Options& options);

  /// Call after a step with the tensors that it completes, then `reduce` if it is due.
  void add(std::span<const std::uint32_t> tensors);
  [[nodiscard]] bool is_due() const { return !waiting_.empty() && waiting_bytes_ >= options_.batch_bytes; }
  /// Collective over the owners. Errors: those of Communicator::reduce_to_owners.
  Status reduce();

  /// Returns whether the tensor was reduced, and forgets that it was complete.
  bool take(std::uint32_t tensor);

 private:
  /// Pages are given back only if the gradients of a host's replicas have more bytes than this together, because new
  /// pages take time.
  static constexpr std::size_t kKeptBytes = std::size_t{1} << 30U;

  struct Divisible {
    Reduction reduction = Reduction::kSum;
    Buffer buffer;
  };

  void forget_others(const Buffer& buffer) const;

  Communicator* owners_ = nullptr;
  Options options_;
  bool gives_back_ = false;
  std::map<std::uint32_t, Divisible> divisible_;  ///< Keyed by tensor.
  std::vector<std::uint32_t> waiting_;            ///< Complete, but not reduced.
  std::size_t waiting_bytes_ = 0;
  std::vector<std::uint32_t> reduced_;
};

}  // namespace poprun
