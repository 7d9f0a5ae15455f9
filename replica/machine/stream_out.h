#pragma once

#include <string>
#include <vector>

#include "replica/graph/graph.h"

namespace poprun {

/// `stream_out(a, b) stream="step"`: the host reads tensors.
struct StreamOut {
  std::string stream;
  std::vector<TensorId> tensors;

  [[nodiscard]] Operation operation() const;
};

}  // namespace poprun
