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

/// Returns parameters, optimiser state, gradient accumulators, and activations in stashes; if a variable resides in a
/// different tensor, such as its shard, returns that tensor instead.
std::map<TensorId, Kept> kept_tensors(const Graph& graph);

/// Where a tensor is kept, and why: "off-chip (memory.optimizer-state)".
struct Location {
  TensorId tensor;
  Kept kept = Kept::kWeight;
  bool off_chip = false;
  std::string why;
};

/// Returns locations of the `kept_tensors` in order of number. Storage::kAuto means on-chip here. An accumulator that
/// only one of the `phases` uses stays on the chip, as it does not outlive that phase. Errors: kUsage if an override is
/// no valid regular expression.
Result<std::vector<Location>> decide_locations(const Graph& graph, const LocationOptions& options,
                                               const std::vector<Place>& phases = {});

/// Moves off-chip tensors to Streaming Memory: stashes as they are, variables to entries of remote buffers. Variables
/// of an IPU share a buffer if their types are equal and their names differ only in numbers: "layer.3.weight" and
/// "layer.12.weight". A region loads a variable right before its use and stores it right after it is written, unless
/// the value is not read again; uses a few operations apart share one load. One copy loads an operation's variables.
///
/// All-reduces and reduce-scatters of off-chip accumulators become one each, before the first read, so that only one is
/// on the chip.
///
/// A phase (one of the regions `phases` of a function) keeps on the chip, for all its rounds, the variables of the
/// functions that it calls. They are loaded in the region before the phase or, if the preceding phase runs on another
/// IPU, before that phase, and stored in the region after the phase. Variables that the region before the phase writes
/// are not loaded; the region after the phase finds its variables on the chip. `update`: the last region of each step
/// that uses accumulators.
void keep_off_chip(Graph& graph, const std::vector<Location>& locations, const std::optional<Place>& update,
                   const std::vector<Place>& phases = {});

}  // namespace poprun
