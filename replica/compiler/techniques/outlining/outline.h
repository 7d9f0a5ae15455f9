#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "replica/compiler/techniques/outlining/runs.h"
#include "replica/graph/graph.h"

namespace poprun {

struct RunTensor {
  TensorId tensor;
  bool is_shared = false;  ///< All runs, and therefore their function, use this same tensor.
  bool comes_in = false;   ///< The run reads a value that was computed before the run.
  bool goes_out = false;   ///< The run writes the tensor, and the tensor is read later or also comes in.
  /// The value stays in the function's own tensor, without a copy: it is used only between the previous and the next
  /// equal run, and only after the last use of the value that the previous run left there.
  bool stays = false;
};

class Reads {
 public:
  explicit Reads(const Graph& graph);

  /// Returns whether a value may be read after its run: by the tensor's next use, or by a region that reads the tensor
  /// before writing it.
  [[nodiscard]] bool after(const Run& run, TensorId tensor) const;

  /// Returns whether only operations [begin, end) of a region, and not the host, use a tensor, and write it before they
  /// read it.
  [[nodiscard]] bool only_in(Place place, std::size_t begin, std::size_t end, TensorId tensor) const;

  /// Returns whether the first use of `next` is no later than the last use of `tensor`. Requires: both are used in the
  /// same region and in no other.
  [[nodiscard]] bool meet(TensorId tensor, TensorId next) const;

 private:
  struct Use {
    Place place;
    std::size_t operation = 0;
    bool reads = false;
  };
  void add(const Use& use, const std::vector<TensorId>& tensors);

  std::vector<bool> is_read_before_written_;  ///< For each tensor, whether some region reads it before writing it.
  std::vector<std::vector<Use>> uses_;        ///< Uses of each tensor, in the graph's order.
  std::set<TensorId> are_named_;              ///< Tensors streamed to or from the host, or initialised by name.
};

/// Returns the tensors of each run in the order of `tensors_of(graph, run)`. Tensors at the same index correspond.
std::vector<std::vector<RunTensor>> tensors_of(const Graph& graph, const Reads& reads, const EqualRuns& equal);

/// Turns each element of `all` into a function, and replaces its runs with calls.
///
///   h = linear(x, w)                  outlined.0/x, outlined.0/w = copy(x, w)
///   y = dropout(h) key="layer3"       call() function="outlined.0" micro_batch=0 salt0="layer3"
///                                     y = copy(outlined.0/y)
///
///   m = copy(M) from_entries=[5]      call() function="outlined.1" micro_batch=0 entry=5
///
/// The function has its own tensors, each at one address (Graphcore's guide to large models, 5.5: inputs and outputs
/// are statically mapped). Tensors that a run reads are copied in, including weights and state; tensors that it
/// changes, or that other operations read, are copied out. A tensor that is the same in all runs needs no copy. Neither
/// does a remote buffer, because the call specifies the entry at which the function begins.
///
/// Requires: each element of `all` is an element of `find_equal_runs(graph)`, or a piece of one (`in_pieces`).
void outline(Graph& graph, const std::vector<EqualRuns>& all);

}  // namespace poprun
