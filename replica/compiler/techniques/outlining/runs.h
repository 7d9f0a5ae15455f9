#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "replica/graph/graph.h"

namespace poprun {

/// Consecutive operations of one region, which may become a call.
struct Run {
  Place place;
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t size() const { return end - begin; }
};

/// Operations of a run. Entries of remote buffers are counted from `entry`, the lowest one that the run uses.
struct RunOperations {
  std::vector<Operation> operations;
  std::int64_t entry = 0;
};
RunOperations operations_of(const Graph& graph, const Run& run);

/// Returns the tensors that a run uses, each once, in order of first use.
std::vector<TensorId> tensors_of(const Graph& graph, const Run& run);

/// Runs that can share one function. Operation k has the same kind, attributes (except for random-number keys) and IPU
/// in all runs, and its operand j has the same type and index in `tensors_of`. The runs use the same remote buffers,
/// with entries at equal distances.
struct EqualRuns {
  std::vector<Run> runs;  ///< At least two, in the graph's order.
  std::size_t root = 0;   ///< The only function through which the host reaches these runs.
};

/// Returns, for each function, its root: the function that the host runs to reach it, possibly the function itself.
/// Returns nothing for a function with several roots.
std::vector<std::optional<std::size_t>> roots_of(const Graph& graph);

/// Minimum number of operations in a run. A copy in, a call and a copy out replace it, so a shorter one saves nothing.
inline constexpr std::size_t kLeastRun = 4;

/// Returns equal runs that do not overlap. They hold operators, copies and foreground collectives, each on one IPU.
///
///   layers        consecutive operations of one layer, with forward and backward kept separate;
///                 recomputed operations count as forward and share that code
///   repetitions   back-to-back repeats of operations outside of layers, such as the updates of
///                 parameters: the longest sequence, with the shortest period
///
/// Deterministic. Cost: linear in the number of operations, but quadratic in each sequence outside of layers.
std::vector<EqualRuns> find_equal_runs(const Graph& graph);

}  // namespace poprun
