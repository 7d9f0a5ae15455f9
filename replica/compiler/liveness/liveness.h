#pragma once

#include <cstdint>
#include <vector>

#include "replica/graph/graph.h"

namespace poprun {

/// When a tensor's bytes matter.
///
///   Steps are numbered through all functions in order: one number an operation, and one behind the
///   last operation of a region that repeats.
///
///     train, repeat 1      0  g0 = fill            g0 [0, 5]: its region repeats behind it
///            repeat 4      1  x = stream_in        x  [1, 2]
///                          2  y = relu x           y  [2, 3]
///                          3  g0 = accumulate g0 y
///                          4  (the repeat itself)
///            repeat 1      5  w = sgd w g0         w  always live: load wrote it
struct Life {
  std::uint32_t first = 0;
  std::uint32_t last = 0;    ///< Inclusive; >= first.
  bool always_live = false;  ///< Then first and last span the whole run.
  bool used = false;         ///< False for tensors that no operation names.
};

struct Liveness {
  std::vector<Life> lives;  ///< By tensor.
  std::uint32_t step_count = 0;
};

/// A tensor is always live when it carries a value from one call of a function to another: when
/// more than one function names it, or the first operation of a function to name it reads it.
/// Otherwise it lives from its first to its last use; a use inside a repeated region of what was
/// made before that region counts until the region's end.
///
/// Requires: verify_graph(graph) holds.
Liveness compute_liveness(const Graph& graph);

}  // namespace poprun
