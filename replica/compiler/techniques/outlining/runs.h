#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "replica/graph/graph.h"

/// Finds operations that follow one another in the same way at several places of a graph.
namespace poprun {

/// Consecutive operations of a region.
struct Run {
  Place place;
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t size() const { return end - begin; }
};

/// The operations that a run has. Entries of remote buffers count from `entry`, the least that the run names.
struct RunOperations {
  std::vector<Operation> operations;
  std::int64_t entry = 0;
};
RunOperations operations_of(const Graph& graph, const Run& run);

/// The tensors that a run names, each once, in the order in which it names them first.
std::vector<TensorId> tensors_of(const Graph& graph, const Run& run);

/// Runs that one function can stand for.
///
/// Operation k of each has the same kind, attributes (except for the names of random
/// numbers) and IPU as operation k of the others, and its operand j is the same tensor of `tensors_of`, of the same
/// type. Remote buffers are the same, entries as far from each other.
struct EqualRuns {
  std::vector<Run> runs;  ///< At least two, in the graph's order.
  std::size_t root = 0;   ///< The function that the host runs to reach them, and no other does.
};

/// By function: the one that the host runs to reach it, itself perhaps; nothing if several do.
std::vector<std::optional<std::size_t>> roots_of(const Graph& graph);

/// The least number of operations of a run: a copy in, a call and a copy out take its place.
inline constexpr std::size_t kLeastRun = 4;

/// Runs of operations that are equal, no two of which overlap: operators, loads and stores of one IPU, and what
/// replicas do with shards and gradients while nothing else goes on.
///
///   layers        what follows one another of one layer of the model, forward and backward apart:
///                 what is recomputed has the code of what is forward
///   repetitions   of operations of no layer, such as the updates of each layer's parameters: the
///                 longest stretch that is some operations, twice or more, the shortest such
///
/// Deterministic. Cost: operations, plus the square of the number of those of no layer in a row.
std::vector<EqualRuns> find_equal_runs(const Graph& graph);

}  // namespace poprun
