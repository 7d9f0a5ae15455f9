#pragma once

#include <cstdint>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/lives/aliases.h"
#include "replica/compiler/tiles/plans.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/program/mapping.h"

/// Maps a graph's tensors to the tiles of their IPUs.
///
/// The rules apply in this order, each to the tensors that no earlier rule has mapped:
///
///   products      results, and operands that are variables, copies of variables or host streams,
///                 have the mapping from the plan of the first product that uses them
///   aliases       tensors that share all their bytes have the same mapping
///   neighbours    the result of a copy, a stash or an elementwise operation has the mapping of its
///                 operand, or vice versa
///   parameters    are spread linearly and evenly over the tiles, at least kLinearBytesMin on each; a parameter
///                 begins on the tile after the last tile of the previous one, so that biases are
///                 not all on the first tiles; then the rule for neighbours applies again
///   the rest      is mapped linearly from tile 0
namespace poprun {

/// Minimum number of bytes per tile in poputil's linear mapping (Poplar and PopLibs API Reference).
inline constexpr Bytes kLinearBytesMin{128};

/// Returns the mapping of every tensor, indexed by TensorId. Deterministic.
std::vector<Mapping> lay_out(const Graph& graph, const ProductPlans& plans, const Aliases& aliases,
                             const Device& device);

}  // namespace poprun
