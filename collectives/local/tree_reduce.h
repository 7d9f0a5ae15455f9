#pragma once

#include <cstddef>
#include <span>

#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// targets[t][i] = the reduction over r of sources[r][i], for i < count elements of `type`, for all
/// t. Combines along the canonical tree over r (patterns/canonical_tree.h). Floats in float32, and
/// kMean divides by the number of sources, once, at the end; halves are widened to that, and the
/// result is rounded after everything. Integers wrap around. kMax of values of which one is NaN is
/// the right one of the two. What two or more sources come to, if it is NaN, is the quiet NaN
/// without sign and payload.
///
/// Requires: a target is one of the sources or overlaps none of them; at least one source; elements
/// are aligned to their size; no mean of kI32.
/// Determinism: the same bits on every x86-64 processor, whatever vectors it has.
/// Cost: reads each source once and writes each target once, block by block in the first cache.
void tree_reduce(Reduction reduction, ElementType type, std::span<const std::byte* const> sources,
                 std::span<std::byte* const> targets, std::size_t count);

// The same in two steps, where the sources of a subtree are together and the subtrees are not.

/// Bytes of an element of a sum: floats of any width are summed in float32, integers as they are.
inline constexpr std::size_t kSumBytes = 4;

/// sum = what the sources of one subtree come to, neither divided nor rounded.
void reduce_subtree(Reduction reduction, ElementType type,
                    std::span<const std::byte* const> sources, std::byte* sum, std::size_t count);

/// target = the reduction over all replicas from sums of subtrees, sums[i] that of `replicas[i]`
/// replicas, in the order of the tree. Requires: they are subtrees of the canonical tree over all.
void combine_subtrees(Reduction reduction, ElementType type, std::span<const std::byte* const> sums,
                      std::span<const std::size_t> replicas, std::byte* target, std::size_t count);

}  // namespace poprun::collectives
