#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "replica/base/units.h"

namespace poprun {

/// What a layer asks of the IPU that it is on.
struct LayerWeight {
  Cycles cycles;  ///< One micro-batch: forward, and in training backward.
  Bytes bytes;    ///< Parameters with their gradients and optimiser state.
};

/// The first layer of each stage but the first, where the layers are spread in order over `stages`
/// IPUs. Of all ways it takes one whose fullest stage exceeds `capacity` least (best, not at all);
/// of these, one whose slowest stage takes fewest cycles; of these, one whose fullest stage has
/// fewest bytes. Ties: later stages begin as early as they can.
///
/// Requires: 1 <= stages <= layers. Deterministic. Cost: O(stages * layers^2).
std::vector<std::size_t> balance(std::span<const LayerWeight> layers, std::size_t stages,
                                 Bytes capacity);

}  // namespace poprun
