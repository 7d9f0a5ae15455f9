#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "replica/compiler/job/pass.h"
#include "replica/graph/graph.h"

namespace poprun {

/// The variables that a phase uses. A phase calls parts for every micro-batch, but loads or gathers each variable once.
struct PhaseUse {
  std::set<std::string> functions;  ///< Called by the phase.
  std::set<TensorId> reads;         ///< Read before anything in the phase writes them.
  std::set<TensorId> writes;
  std::uint32_t ipu = 0;
};

PhaseUse use_in_phase(const Graph& graph, const Region& phase, const std::set<TensorId>& variables);

/// Returns the tensors that only one phase uses. The regions just before and after a phase count as part of it.
std::set<TensorId> used_in_one_phase(const Graph& graph, const std::vector<Place>& phases);

/// Returns the region that stores phase `p`'s results: the last one before the next phase or, for the last phase, the
/// first one after it.
Place behind(const std::vector<Place>& phases, std::size_t p);

/// Returns the region of the same function that is `distance` regions after `place`; a negative distance means before.
Place beside(Place place, int distance);

/// Moves the work that a phased training step does for one phase to that phase, so that gradients do not outlive the
/// phase and its variables are not loaded again:
///
///   begin     w0.acc = 0, w1.acc = 0                begin
///   phase 1   w1.acc += ..               ->         w1.acc = 0
///   phase 0   w0.acc += ..                          phase 1   w1.acc += ..
///   update    all_reduce(w0.acc, w1.acc)            all_reduce(w1.acc), w1 = sgd(w1, w1.acc)
///             w0 = sgd(w0, w0.acc)                  w0.acc = 0
///             w1 = sgd(w1, w1.acc)                  phase 0   w0.acc += ..
///                                                   update    all_reduce(w0.acc), ..
///
/// The constant that initialises a gradient moves to the region before the first phase that uses it. An operation of
/// the update moves to the region after the last phase that writes its inputs or uses its outputs. Weights whose update
/// depends on the norm of all gradients are updated at the end. Operations that do not change variables move only as
/// far as needed. Operations that send to the host stay. All-reduces are split into one per tensor.
///
/// A step that ends early still changes nothing, because every micro-batch has been read by the end of the last forward
/// phase. Requires: the regions are as `make_pipeline` creates them, and step.phases is set.
void order_phases(Graph& graph, const TrainingStep& step);

}  // namespace poprun
