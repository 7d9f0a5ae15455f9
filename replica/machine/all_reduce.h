#pragma once

#include <optional>
#include <vector>

#include "replica/base/error.h"
#include "replica/graph/graph.h"
#include "replica/ports/communicator.h"

namespace poprun {

/// `a, b = all_reduce(a, b) reduction="mean"`: every tensor becomes its reduction over all
/// replicas, in place, in one exchange. With `background=1` it only begins, and an AwaitAllReduces
/// names the same tensors before anything else does.
struct AllReduce {
  Reduction reduction = Reduction::kSum;
  bool in_background = false;
  std::vector<TensorId> tensors;

  [[nodiscard]] Operation operation() const;

  /// The all-reduce that an operation is, if it is one. Requires: its `verify` face holds.
  static std::optional<AllReduce> from(const Operation& operation);
};

}  // namespace poprun
