#pragma once

#include <cstdint>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/lives/aliases.h"
#include "replica/compiler/tiles/plans.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/program/mapping.h"

/// How a graph's tensors lie on the tiles of their IPUs.
///
/// The rules, in this order; each applies to tensors that none before it has mapped:
///
///   products      results, and operands that are variables, copies of them or come from the host,
///                 as the plan of the first product that names them lays them
///   aliases       tensors that lie in the same bytes lie alike
///   neighbours    what a copy, a stash or an operation that works element by element makes lies as
///                 what it is made of, or the other way round
///   parameters    in one row, evenly over the tiles, at least kLinearBytesMin on each; one begins
///   on
///                 the tile after the last one's, so that biases do not all lie on the first tiles;
///                 then neighbours once more
///   the rest      in one row from tile 0
namespace poprun {

/// The fewest bytes that poputil's linear mapping puts on a tile (Poplar and PopLibs API Reference).
inline constexpr Bytes kLinearBytesMin{128};

/// The mapping of every tensor, by its number. Deterministic.
std::vector<Mapping> lay_out(const Graph& graph, const ProductPlans& plans, const Aliases& aliases,
                             const Device& device);

}  // namespace poprun
