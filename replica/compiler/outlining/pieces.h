#pragma once

#include <cstdint>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/outlining/outline.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"

/// A function has copies of what it reads, and the weights of a layer stay where they were, too. Of
/// a long run the copies may be so large that what the shared code saves is lost again.
namespace poprun {

/// What a graph's tensors take at each step, with the temporaries of products.
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

/// Equal runs, each cut into pieces at the same operations: as many as take the least on each tile
/// of the IPU, of code of their copies and of bytes by which copies raise the IPU's peak. Of pieces
/// that take the same, the fewest; none is shorter than kLeastRun.
///
/// Requires: `equal` is of `find_equal_runs(graph)`. Deterministic. Cost: the square of the
/// operations of a run, times its tensors.
std::vector<EqualRuns> in_pieces(const Graph& graph, const EqualRuns& equal, const Reads& reads,
                                 const StepBytes& bytes, const Device& device);

}  // namespace poprun
