#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/compiler/job/compile_options.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Kinds of tensor that outlive the operations around them.
enum class Kept : std::uint8_t { kWeight, kOptimizerState, kAccumulator, kActivation };

/// Returns parameters, optimiser state, gradient accumulators, and activations in stashes. For a variable that resides
/// in a different tensor, such as its shard, that tensor is returned.
std::map<TensorId, Kept> kept_tensors(const Graph& graph);

/// The location of a tensor, with the reason: "off-chip (memory.optimizer-state)".
struct Location {
  TensorId tensor;
  Kept kept = Kept::kWeight;
  bool off_chip = false;
  std::string why;
};

/// Returns the locations of the `kept_tensors`, sorted by TensorId. Storage::kAuto means on-chip here. An accumulator
/// that only one of the `phases` uses stays on the chip, because it does not outlive that phase. Errors: kUsage if an
/// override is not a valid regular expression.
Result<std::vector<Location>> decide_locations(const Graph& graph, const LocationOptions& options,
                                               const std::vector<Place>& phases = {});

/// Moves off-chip tensors to Streaming Memory. Stashes move as they are, and variables become entries of remote
/// buffers. Variables on an IPU share a buffer if they have the same type and their names differ only in numbers, such
/// as "layer.3.weight" and "layer.12.weight". A region loads a variable right before its use. It stores the variable
/// right after a write, unless the value is not read again. Uses that are a few operations apart share one load. One
/// copy loads all of an operation's variables.
///
/// All-reduces and reduce-scatters of several off-chip accumulators are split (split_reductions.h).
///
/// A phase (one of the regions `phases` of a function) keeps on the chip, for all its rounds, the variables of the
/// functions that it calls. They are loaded in the region before the phase or, if the preceding phase runs on another
/// IPU, before that phase, and stored in the region after the phase. Variables that the region before the phase writes
/// are not loaded; the region after the phase finds the phase's variables on the chip. `update`: the last region of
/// each step that uses accumulators.
void keep_off_chip(Graph& graph, const std::vector<Location>& locations, const std::optional<Place>& update,
                   const std::vector<Place>& phases = {});

}  // namespace poprun
