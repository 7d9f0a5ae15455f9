#pragma once

#include <cstdint>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/outlining/outline.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"

/// What outlining saves and takes, by the rules of tiles/demand.h, before anything has a place.
namespace poprun {

/// On each tile of an IPU, or on all where that is said.
struct Saving {
  std::uint32_t ipu = 0;
  std::int64_t operations = 0;  ///< Of one run.
  std::int64_t runs = 0;
  Bytes code;    ///< Of all runs but one: control code, vertex state and exchange code.
  Bytes copies;  ///< Control code of the copies.
  Bytes copied;  ///< Tensors of the function that are copies, on all tiles: what it may take.

  [[nodiscard]] Bytes net() const { return code - copies; }
};

/// Cost: products are planned, which the compiler does later anyway and remembers.
Saving saving_of(const Graph& graph, const ReadCounts& reads, const EqualRuns& equal,
                 const Device& device);

/// By IPU, the most bytes of tensors that live at one step, on all tiles.
std::vector<Bytes> live_peaks(const Graph& graph, std::int64_t ipus);

}  // namespace poprun
