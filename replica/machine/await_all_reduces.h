#pragma once

#include <vector>

#include "replica/graph/graph.h"

namespace poprun {

/// `a, b = await_all_reduces(a, b)`: waits until every all-reduce in the background is done. The
/// tensors are those that they reduce.
struct AwaitAllReduces {
  std::vector<TensorId> tensors;

  [[nodiscard]] Operation operation() const;

  /// Whether an operation is one.
  static bool is(const Operation& operation);
};

}  // namespace poprun
