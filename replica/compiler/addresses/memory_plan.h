#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/compiler/lives/liveness.h"

/// Buffer assignment: assigns every tensor an offset in one memory.
///
///   offset
///     ^   +---+  +-------+      Each box is one tensor: its width is its live range in steps,
///     |   | B |  |   D   |      its height is its size. A plan is correct when no two boxes
///     | +-+---+--+--+----+      overlap; it is good when the skyline (`peak`) is close to the
///     | |  A     |  C    |      tallest column of live bytes (`lower_bound`).
///     +-+--------+-------+--> step
///
/// A tensor whose live range has gaps has a box for each span, all at the same offset. Tensors that alias form a block:
/// the distances between their boxes are fixed, and the boxes may overlap.
namespace poprun {

/// One tensor's allocation: `size` bytes from before the first step of each span until after its last.
struct Claim {
  std::vector<Span> spans;  ///< In ascending order, without overlaps; at least one.
  Bytes size;               ///< > 0, before alignment.

  /// The number of the block that the tensor belongs to, if any. Block numbers are arbitrary.
  std::optional<std::uint32_t> block = {};
  Bytes in_block = {};  ///< Offset in its block; a multiple of kTensorAlignment, >= 0.
};

struct MemoryPlan {
  std::vector<Bytes> offsets;    ///< offsets[i] is the offset of claims[i].
  Bytes peak;                    ///< End of the highest tensor.
  Bytes lower_bound;             ///< Maximum live bytes at any step, counting shared bytes once; no peak is lower.
  std::uint32_t worst_step = 0;  ///< The first step with that many live bytes.
};

/// Every offset of a tensor's image is a multiple of this, as oneDNN's kernels require.
inline constexpr Bytes kTensorAlignment{64};

/// Places the tensors with the longest live range first, then the others in order of decreasing size, each at the
/// lowest multiple of `alignment` that is free for its whole live range. A block is placed as one piece, which claims
/// at each step only the bytes of its live tensors.
///
/// Deterministic: identical inputs give identical plans on every machine. Cost for n spans: about n log^2 n if blocks
/// that are live together are adjacent with few gaps, otherwise n^2. Does not check that the plan fits into a memory.
MemoryPlan plan_memory(std::span<const Claim> claims, Bytes alignment = kTensorAlignment);

/// Checks independently that no two tensors from different blocks share a byte at the same step, that tensors of one
/// block keep their distances, that offsets are aligned, and that peak and lower bound are correct. Shares no code with
/// `plan_memory`. Errors: kBug with the claim and the step.
Status verify_plan(std::span<const Claim> claims, const MemoryPlan& plan, Bytes alignment = kTensorAlignment);

}  // namespace poprun
