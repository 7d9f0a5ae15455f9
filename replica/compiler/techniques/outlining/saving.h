#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/techniques/outlining/outline.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/machine/machine.h"

/// A function has copies of what it reads, and the weights of a layer stay where they were, too. Of a long run the
/// copies may be so large that what the shared code saves is lost again.
/// Savings and costs of outlining, by the rules of addresses/demand.h, before anything has an address.
namespace poprun {

/// Memory of a graph's tensors at each step, with the temporaries of products.
class StepBytes {
 public:
  StepBytes(const Graph& graph, const Device& device, std::int64_t ipus);

  /// The most that is there while an operation runs, and while any does.
  [[nodiscard]] Bytes at(Place place, std::size_t operation, std::uint32_t ipu) const;
  [[nodiscard]] Bytes peak(std::uint32_t ipu) const;

 private:
  std::vector<std::vector<std::uint32_t>> first_step_;  ///< By function and region.
  std::vector<std::vector<Bytes>> by_step_;             ///< By IPU.
};

/// Equal runs, each cut into pieces at the same operations: as many as take the least on each tile of the IPU, of code
/// of their copies and of bytes by which copies raise the IPU's peak. Of pieces that take the same, the fewest; none is
/// shorter than kLeastRun.
///
/// Requires: `equal` is of `find_equal_runs(graph)`. Deterministic. Cost: the square of the operations of a run, times
/// its tensors.
std::vector<EqualRuns> in_pieces(const Graph& graph, const EqualRuns& equal, const Reads& reads, const StepBytes& bytes,
                                 const Device& device);

/// Savings and costs of equal runs if they become one function.
struct Saving {
  std::uint32_t ipu = 0;
  std::int64_t operations = 0;  ///< In one run.
  std::int64_t runs = 0;
  Bytes code;      ///< On a tile, of all runs but one: control code, vertex state, exchange code.
  Bytes copies;    ///< On a tile, control code of the copies.
  Cycles copying;  ///< By all copies of one call of the root.
  Cycles working;  ///< By all operations of the runs, each by itself, likewise.

  [[nodiscard]] Bytes net() const { return code - copies; }
};

/// How much a graph's functions do.
class Workload {
 public:
  Workload(const Graph& graph, const Device& device, const ReplicaSystem& system);

  /// The cost of an operation by itself.
  [[nodiscard]] Cycles time_of(const Operation& operation) const;

  /// How often a function runs in one call of its root.
  [[nodiscard]] std::int64_t executions(std::size_t function) const { return executions_.at(function); }

  /// The work of an IPU in one call of a function that the host runs, each operation by itself.
  [[nodiscard]] Cycles busy(std::size_t root, std::uint32_t ipu) const;

 private:
  const Graph& graph_;
  const Device& device_;
  ReplicaSystem system_;
  std::vector<std::int64_t> executions_;
  std::map<std::pair<std::size_t, std::uint32_t>, Cycles> busy_;
};

/// Cost: products are planned, which the compiler does later anyway and remembers.
Saving saving_of(const Graph& graph, const EqualRuns& equal, const Reads& reads, const Workload& workload,
                 const Device& device);

}  // namespace poprun
