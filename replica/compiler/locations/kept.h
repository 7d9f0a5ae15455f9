#pragma once

#include <cstdint>
#include <map>

#include "replica/graph/graph.h"

namespace poprun {

/// What a tensor is that outlives the operations around it.
enum class Kept : std::uint8_t { kWeight, kOptimizerState, kAccumulator, kActivation };

/// Parameters, optimiser state, gradient accumulators, and activations in stashes. Of a variable
/// that resides in another tensor, that one.
std::map<TensorId, Kept> kept_tensors(const Graph& graph);

}  // namespace poprun
