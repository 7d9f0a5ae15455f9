#pragma once

#include <cstdint>
#include <vector>

#include "replica/graph/graph.h"

namespace poprun {

/// Steps from `first` to `last`, both included.
struct Span {
  std::uint32_t first = 0;
  std::uint32_t last = 0;

  friend bool operator==(const Span&, const Span&) = default;
};

/// When a tensor's bytes matter.
///
///   Steps are numbered through all functions in order: one number an operation, and one after the
///   last operation of a region that repeats. A function that is called has its numbers where it is
///   listed, so a tensor that is made in one function and read in another has several spans.
///
///     train, repeat 1      0  g0 = fill            g0 [0, 2] [4, 7]
///            repeat 4      1  call body
///                          2  (the repeat itself)
///            repeat 1      3  w = sgd w g0         w  always live: load wrote it
///     body,  repeat 1      4  x = stream_in        x  [4, 5]
///                          5  y = relu x           y  [5, 6]
///                          6  g0 = accumulate g0 y
struct Life {
  std::vector<Span> spans;   ///< Rising, with gaps between them; empty if no operation names it.
  bool always_live = false;  ///< Then one span, the whole run.
};

/// The steps of any of the spans: rising, with gaps between them.
std::vector<Span> united(std::vector<Span> spans);

struct Liveness {
  std::vector<Life> lives;  ///< By tensor.
  /// By step: tensors, rising, whose value ends there wherever the step is called from.
  std::vector<std::vector<std::uint32_t>> deaths;
  std::uint32_t step_count = 0;
};

/// A tensor is always live when it carries a value from one function that the host runs to another: when in one of
/// them, with what it calls, the first operation to name it reads it. Otherwise it lives from each operation that
/// writes it, and does not update it, to the last one that reads that value, in the order in which operations run:
/// through calls and rounds. A stash or remote buffer lives from its first entry to its last use.
///
/// Two tensors that live at the same time share a step, wherever the function at that step was called from. Cost:
/// operations as they run, times tensors / 64; of a region that repeats, three rounds run, since what a round leaves to
/// later ones is all the same.
///
/// Requires: verify_graph(graph) holds; a tensor that is not updated in place is read at most one round after the one
/// that wrote it.
Liveness compute_liveness(const Graph& graph);

}  // namespace poprun
