#pragma once

#include <string>
#include <vector>

#include "replica/graph/graph.h"

namespace poprun {

/// `a, b = stream_in() stream="train"`: the host writes the next batch of a stream.
struct StreamIn {
  std::string stream;
  std::vector<TensorId> tensors;

  [[nodiscard]] Operation operation() const;
};

}  // namespace poprun
