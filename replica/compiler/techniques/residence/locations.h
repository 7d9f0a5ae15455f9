#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/compiler/job/compile_options.h"
#include "replica/graph/graph.h"

/// Decides which of a job's tensors are kept in Streaming Memory, and how the job's functions reach them.
namespace poprun {

/// Kinds of tensor that outlive the operations around them.
enum class Kept : std::uint8_t { kWeight, kOptimizerState, kAccumulator, kActivation };

/// Parameters, optimiser state, gradient accumulators, and activations in stashes. Of a variable that resides in
/// another tensor, that one.
std::map<TensorId, Kept> kept_tensors(const Graph& graph);

/// A tensor that is kept, with where and why: "off-chip (memory.optimizer-state)".
struct Location {
  TensorId tensor;
  Kept kept = Kept::kWeight;
  bool off_chip = false;
  std::string why;
};

/// Decides for each parameter, optimiser state, gradient accumulator and stash, by rising number. Storage::kAuto is on
/// the chip here. An accumulator that only one of the `phases` uses stays on the chip, since it does not outlive it.
/// Errors: kUsage, an override is no regular expression.
Result<std::vector<Location>> decide_locations(const Graph& graph, const LocationOptions& options,
                                               const std::vector<Place>& phases = {});

/// Moves what is decided to be off the chip there. A stash is moved as it is. A variable gets an entry of a remote
/// buffer; variables of one IPU that are alike in type and, except for the numbers in their names, in name, share one:
/// "layer.3.weight" and "layer.12.weight". A region of a function loads it right before it is used and stores it right
/// after it was written, unless nothing reads that any more; uses few operations apart share one load. Variables that
/// one operation uses are loaded by one copy.
///
/// An all-reduce or reduce-scatter of such accumulators becomes one for each, right before what reads its result first,
/// so that no two are on the chip at once.
///
/// A phase, which is one of the regions `phases` of a function, keeps the variables of what it calls on the chip for
/// all its rounds: they are loaded in the region before it, or before the phase before it where that runs on another
/// IPU, and stored in the region after it. What the region before it writes is not loaded, and what the region after it
/// uses is there.
///
/// `update`: the region that uses accumulators last in each step.
void keep_off_chip(Graph& graph, const std::vector<Location>& locations, const std::optional<Place>& update,
                   const std::vector<Place>& phases = {});

}  // namespace poprun
