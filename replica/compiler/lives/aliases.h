#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/lives/liveness.h"
#include "replica/graph/graph.h"

namespace poprun {

struct Alias {
  std::uint32_t block = 0;
  Bytes offset;  ///< Distance from the block's first byte.
};

/// The alias of each tensor; nothing for a tensor that shares no bytes. Empty if the graph has not been analysed.
using Aliases = std::vector<std::optional<Alias>>;

/// Two kinds of operation let tensors share bytes:
///
///   relu (Operator::in_place)           reshape, slice, split, concat (Operator::view)
///
///     x  |======|                         x  |==========|       Nothing is written at the step:
///     y         |=====|                   y       |==========|  it costs no time and no bytes.
///               step                              step
///
///   In place, y takes over the bytes of an input that dies at the step. A view aliases its input
///   (for a concat, the inputs alias the output), however long either lives.
///
/// Operations are considered in order, and each may alias if every value is preserved: when a step writes a tensor's
/// bytes, no other tensor of its block that shares one of these bytes may be live at that step, except for the input
/// whose bytes are taken. A tensor stays alive for every later reader: a stash, a clone, an exchange, a host
/// stream, or a different function that the host runs. At each step, a block claims only the bytes of its live tensors,
/// so it never claims more than they would separately. Each block is on one IPU.
///
/// Deterministic. Cost: for each operation that aliases, the product of the sizes of the blocks that it joins. The size
/// of a block is the length of a chain of such operations. Requires: `liveness` belongs to `graph`.
Aliases find_aliases(const Graph& graph, const Liveness& liveness);

/// Returns whether an operation has nothing to do, because its results alias its operands.
bool is_view(const Graph& graph, const Operation& operation, const Aliases& aliases);

}  // namespace poprun
