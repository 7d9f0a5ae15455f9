#pragma once

#include <cstddef>
#include <span>

#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// targets[t][i] = the reduction over r of sources[r][i], for i < count, for all t. Combines along
/// the canonical tree over r (patterns/canonical_tree.h), in float32; kMean divides by the number
/// of sources, once, at the end. kMax of values of which one is NaN is the right one of the two.
///
/// Requires: a target is one of the sources or overlaps none of them; at least one source.
/// Determinism: the same bits on every x86-64 processor, whatever vectors it has.
/// Cost: reads each source once and writes each target once, block by block in the first cache.
void tree_reduce(Reduction reduction, std::span<const float* const> sources,
                 std::span<float* const> targets, std::size_t count);

}  // namespace poprun::collectives
