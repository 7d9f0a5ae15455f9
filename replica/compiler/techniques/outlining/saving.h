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

/// Savings and costs of outlining, estimated by the rules of addresses/demand.h before buffers are assigned. A function
/// holds copies of its inputs while the originals, such as weights, stay in place; in a long run, the copies may need
/// more memory than the shared code saves.
namespace poprun {

/// Memory of a graph's tensors at each step, with the temporaries of products.
class StepBytes {
 public:
  StepBytes(const Graph& graph, const Device& device, std::int64_t ipus);

  /// Return the bytes on an IPU while an operation runs, and the maximum over all operations.
  [[nodiscard]] Bytes at(Place place, std::size_t operation, std::uint32_t ipu) const;
  [[nodiscard]] Bytes peak(std::uint32_t ipu) const;

 private:
  std::vector<std::vector<std::uint32_t>> first_step_;  ///< Indexed by function and region.
  std::vector<std::vector<Bytes>> by_step_;             ///< Indexed by IPU, then step.
};

/// Cuts all equal runs into pieces at the same operations. The cuts minimise the sum, per tile, of the copies' code
/// and the bytes by which the copies raise the IPU's peak; in a tie, the fewest pieces win. No piece is shorter than
/// kLeastRun. Requires: `equal` comes from `find_equal_runs(graph)`. Deterministic. Cost: quadratic in the operations
/// of a run, times its tensors.
std::vector<EqualRuns> in_pieces(const Graph& graph, const EqualRuns& equal, const Reads& reads, const StepBytes& bytes,
                                 const Device& device);

/// Savings and costs of equal runs if they become one function.
struct Saving {
  std::uint32_t ipu = 0;
  std::int64_t operations = 0;  ///< Per run.
  std::int64_t runs = 0;
  Bytes code;      ///< Per tile: control code, vertex state and exchange code of all runs except one.
  Bytes copies;    ///< Per tile: control code of the copies.
  Cycles copying;  ///< Device time of all copies per call of the root.
  Cycles working;  ///< Sum of the device times of the runs' operations per call of the root.

  [[nodiscard]] Bytes net() const { return code - copies; }
};

class Workload {
 public:
  Workload(const Graph& graph, const Device& device, const ReplicaSystem& system);

  [[nodiscard]] Cycles time_of(const Operation& operation) const;

  /// Returns the number of times that a function runs per call of its root.
  [[nodiscard]] std::int64_t executions(std::size_t function) const { return executions_.at(function); }

  /// Returns the sum of the device times of an IPU's operations per call of a function that the host runs.
  [[nodiscard]] Cycles busy(std::size_t root, std::uint32_t ipu) const;

 private:
  const Graph& graph_;
  const Device& device_;
  ReplicaSystem system_;
  std::vector<std::int64_t> executions_;
  std::map<std::pair<std::size_t, std::uint32_t>, Cycles> busy_;
};

/// Estimates a Saving. Cost: that of planning the products; the plans are cached, and the compiler needs them anyway.
Saving saving_of(const Graph& graph, const EqualRuns& equal, const Reads& reads, const Workload& workload,
                 const Device& device);

}  // namespace poprun
