#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/lives/liveness.h"
#include "replica/graph/graph.h"

/// Decides which tensors lie in each other's bytes.
namespace poprun {

/// A tensor's place in a block of bytes that several tensors share.
struct Alias {
  std::uint32_t block = 0;
  Bytes offset;  ///< From the block's first byte.
};

/// By tensor; nothing for those whose bytes are theirs alone, and for all of a graph that is not listed (an empty
/// vector).
using Aliases = std::vector<std::optional<Alias>>;

/// Two operations let tensors share bytes:
///
///   relu (Operator::in_place)           reshape, slice, split, concat (Operator::view)
///
///     x  |======|                         x  |==========|       Nothing is written at the step:
///     y         |=====|                   y       |==========|  it costs no time and no bytes.
///               step                              step
///
///   In place: y takes the bytes of an input that dies at the step. A view lies in its input's
///   bytes (or, of a concat, its inputs in the output's), however long either lives.
///
/// Operations are taken in order, and each is granted what keeps every value: when a step writes a tensor's bytes, no
/// other tensor of its block that has one of them may live at that step, except for the input that it takes. Whatever
/// still reads a tensor lets it live: a stash, a clone, an exchange, a host stream, another function that the host
/// runs. At each step a block claims the bytes of its tensors that live then, so never more than they would each by
/// themselves. Tensors of a block have one home.
///
/// Deterministic. Cost: for each operation that shares, the product of the sizes of the blocks that it joins; blocks
/// are as long as chains of such operations.
///
/// Requires: `liveness` is the graph's.
Aliases find_aliases(const Graph& graph, const Liveness& liveness);

/// Whether an operation has nothing to do, since its results lie in its operands' bytes.
bool is_view(const Graph& graph, const Operation& operation, const Aliases& aliases);

}  // namespace poprun
