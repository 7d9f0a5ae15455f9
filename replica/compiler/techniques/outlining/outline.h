#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "replica/compiler/techniques/outlining/runs.h"
#include "replica/graph/graph.h"

namespace poprun {

/// The use that a run makes of a tensor.
struct RunTensor {
  TensorId tensor;
  bool is_shared = false;  ///< All runs name this one, and so does their function.
  bool comes_in = false;   ///< The run reads what was in it before.
  bool goes_out = false;   ///< The run writes it, and others read that, or it comes in, too.
  /// Is left in the function's own tensor: it is used only between the runs like this before and after it, and by none
  /// of these operations as early as the last that uses what the run before it left there.
  bool stays = false;
};

/// Answers which operations read a tensor of the graph.
class Reads {
 public:
  explicit Reads(const Graph& graph);

  /// Whether something may read what a run leaves in a tensor: what follows it in its region, before that is written
  /// again, or a region that reads the tensor before it writes it.
  [[nodiscard]] bool after(const Run& run, TensorId tensor) const;

  /// Whether all that uses a tensor, the host included, is operations [begin, end) of a region, which write it first.
  [[nodiscard]] bool only_in(Place place, std::size_t begin, std::size_t end, TensorId tensor) const;

  /// Whether an operation that uses `next` comes before the last one that uses `tensor`, or is that one. Requires: each
  /// is used in one region, the same.
  [[nodiscard]] bool meet(TensorId tensor, TensorId next) const;

 private:
  struct Use {
    Place place;
    std::size_t operation = 0;
    bool reads = false;
  };
  void add(const Use& use, const std::vector<TensorId>& tensors);

  std::vector<bool> is_read_before_written_;  ///< By tensor, in some region.
  std::vector<std::vector<Use>> uses_;        ///< By tensor, in the graph's order.
  std::set<TensorId> are_named_;              ///< To or from the host, or initialised by name.
};

/// The tensors of each run, in the order of `tensors_of`: those at the same place stand for each other.
std::vector<std::vector<RunTensor>> tensors_of(const Graph& graph, const Reads& reads, const EqualRuns& equal);

/// Makes a function of each element of `all` and lets its runs call it.
///
///   h = linear(x, w)                  outlined.0/x, outlined.0/w = copy(x, w)
///   y = dropout(h) key="layer3"       call() function="outlined.0" micro_batch=0 salt0="layer3"
///                                     y = copy(outlined.0/y)
///
///   m = copy(M) from_entries=[5]      call() function="outlined.1" micro_batch=0 entry=5
///
///
/// The function has tensors of its own, each at one address (Graphcore's guide to large models, 5.5: inputs and outputs
/// are statically mapped). Tensors that a run reads are copied in, weights and state included; tensors that it changes,
/// or that others read, are copied out. A tensor that all runs name alike needs no copy, and remote buffers none: the
/// call says at which entry the function begins.
///
/// Requires: all are of `find_equal_runs(graph)`.
void outline(Graph& graph, const std::vector<EqualRuns>& all);

}  // namespace poprun
