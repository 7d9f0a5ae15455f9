#pragma once

#include <cstdint>
#include <vector>

#include "replica/compiler/outlining/runs.h"
#include "replica/graph/graph.h"

namespace poprun {

/// What a run has to do with a tensor that it names.
struct RunTensor {
  TensorId tensor;
  bool is_shared = false;  ///< All runs name this one, and so does their function.
  bool comes_in = false;   ///< The run reads what was in it before.
  bool goes_out = false;   ///< The run writes it, and others read that, or it comes in, too.
};

/// How often a graph's operations read each tensor.
class ReadCounts {
 public:
  explicit ReadCounts(const Graph& graph);
  [[nodiscard]] std::uint32_t of(TensorId tensor) const { return counts_[index_of(tensor)]; }

 private:
  std::vector<std::uint32_t> counts_;
};

/// The tensors of each run, in the order of `tensors_of`: those at the same place stand for each
/// other.
std::vector<std::vector<RunTensor>> tensors_of(const Graph& graph, const ReadCounts& reads,
                                               const EqualRuns& equal);

/// Makes a function of each element of `all` and lets its runs call it.
///
///   h = linear(x, w)                  outlined.0/x, outlined.0/w = copy(x, w)
///   y = dropout(h) key="layer3"       call() function="outlined.0" micro_batch=0 salt0="layer3"
///                                     y = copy(outlined.0/y)
///
/// The function has tensors of its own, each at one address (seed 001, 5.5: inputs and outputs are
/// statically mapped). What a run reads is copied in, weights and state included; what it changes
/// or others read is copied out. A tensor that all runs name alike needs no copy.
///
/// Requires: all are of `find_equal_runs(graph)`.
void outline(Graph& graph, const std::vector<EqualRuns>& all);

}  // namespace poprun
