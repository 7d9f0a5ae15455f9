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

/// The live range of a tensor: the steps at which its bytes matter.
///
///   Steps are numbered through all functions in order: one number per operation, and one after the
///   last operation of a region that repeats. A called function is numbered where it is listed,
///   so a tensor that one function writes and another reads has several spans.
///
///     train, repeat 1      0  g0 = fill            g0 [0, 2] [4, 7]
///            repeat 4      1  call body
///                          2  (the repeat itself)
///            repeat 1      3  w = sgd w g0         w  always live: load wrote it
///     body,  repeat 1      4  x = stream_in        x  [4, 5]
///                          5  y = relu x           y  [5, 6]
///                          6  g0 = accumulate g0 y
struct Life {
  std::vector<Span> spans;   ///< In ascending order, with gaps between them; empty if no operation uses the tensor.
  bool always_live = false;  ///< If so, there is one span: the whole run.
};

/// Returns the union of the spans, in ascending order and with gaps between them.
std::vector<Span> united(std::vector<Span> spans);

struct Liveness {
  std::vector<Life> lives;  ///< Indexed by tensor.
  /// For each step, the tensors whose values end there, in ascending order, whichever call executes the step.
  std::vector<std::vector<std::uint32_t>> deaths;
  std::uint32_t step_count = 0;
};

/// Computes the live ranges of all tensors. A tensor is always live if it carries a value between functions that the
/// host runs, that is, if the first operation that uses it in one of them, or in a function called there, reads it.
/// Otherwise it lives from each operation that writes it (rather than updates it) to the last operation that reads that
/// value, in the order of execution through calls and rounds. A stash or remote buffer lives from the first write of
/// an entry to the last use of any entry.
///
/// If two tensors are live at the same time, their live ranges share a step, whichever call they are live in. Cost: the
/// number of executed operations times the number of tensors / 64. Only three rounds of a repeated region are followed,
/// because later ones are the same. Requires: verify_graph(graph) holds; a tensor that is not updated in place is read
/// at most one round after the round that wrote it.
Liveness compute_liveness(const Graph& graph);

}  // namespace poprun
