#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/compiler/lives/liveness.h"

/// Decides where every tensor lives inside one memory.
///
///   offset
///     ^   +---+  +-------+      Each box is one tensor: its width is the steps it is live for,
///     |   | B |  |   D   |      its height is its size. A plan is correct when no two boxes
///     | +-+---+--+--+----+      overlap; it is good when the skyline (`peak`) is close to the
///     | |  A     |  C    |      tallest column of live bytes (`lower_bound`).
///     +-+--------+-------+--> step
///
/// A tensor whose life has gaps has a box for each span, all at one offset. Tensors that share bytes on purpose form a
/// block: their boxes keep their distances, and may overlap each other.
namespace poprun {

/// One tensor's claim: `size` bytes from before the first step of each span until after its last.
struct Claim {
  std::vector<Span> spans;  ///< Rising, without overlaps; at least one.
  Bytes size;               ///< > 0, before alignment.

  /// The block that it is part of, an arbitrary number; nothing: it is alone.
  std::optional<std::uint32_t> block = {};
  Bytes in_block = {};  ///< Where it begins in its block; a multiple of kTensorAlignment, >= 0.
};

struct MemoryPlan {
  std::vector<Bytes> offsets;    ///< offsets[i] places claims[i].
  Bytes peak;                    ///< End of the highest tensor.
  Bytes lower_bound;             ///< Most bytes live at one step, shared ones once; no plan has a lower peak.
  std::uint32_t worst_step = 0;  ///< The first step at which they are.
};

/// Every offset of a tensor's image is a multiple of this: what oneDNN's kernels ask for.
inline constexpr Bytes kTensorAlignment{64};

/// Places the longest-lived tensors first, the larger first among equals, each at the lowest offset that is free for
/// its whole life and a multiple of `alignment`. A block is placed as one piece, which claims at each step only the
/// bytes of its tensors that live then.
///
/// Deterministic: equal inputs give equal plans on every machine. About n log^2 n in spans, as
/// long as blocks that live together lie side by side and leave few gaps; n^2 where they do not. Whether the plan fits
/// a memory is the caller's question.
MemoryPlan plan_memory(std::span<const Claim> claims, Bytes alignment = kTensorAlignment);

/// Re-derives from scratch that no two tensors share a byte at the same step unless they are of one block, that those
/// of a block keep their distances, that offsets are aligned, and that peak and lower bound are what they say. Shares
/// no code with `plan_memory`. Errors: kBug, names the claim and the step.
Status verify_plan(std::span<const Claim> claims, const MemoryPlan& plan, Bytes alignment = kTensorAlignment);

}  // namespace poprun
