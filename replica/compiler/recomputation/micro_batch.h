#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "replica/graph/graph.h"

namespace poprun {

/// A micro-batch's operations by index: the forward pass, then from the first backward operation on
/// the backward pass. Valid as long as the region stays as it is.
class MicroBatch {
 public:
  using Index = std::uint32_t;
  static constexpr Index kNone = std::numeric_limits<Index>::max();

  MicroBatch(const Graph& graph, Place place);

  [[nodiscard]] const std::vector<Operation>& operations() const { return operations_; }

  /// Forward operations come before it.
  [[nodiscard]] Index backward() const { return backward_; }

  /// The forward operation that makes a tensor and can run again with the same result, or kNone.
  /// Those that update a tensor or read one that is updated, exchange data with the host, or give
  /// what the step reports, cannot.
  [[nodiscard]] Index maker(TensorId tensor) const { return makers_.at(index_of(tensor)); }

  [[nodiscard]] std::uint32_t last_stage() const { return last_stage_; }

 private:
  const std::vector<Operation>& operations_;
  Index backward_ = 0;
  std::vector<Index> makers_;  ///< By tensor.
  std::uint32_t last_stage_ = 0;
};

}  // namespace poprun
