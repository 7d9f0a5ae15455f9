#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "replica/compiler/job/pass.h"
#include "replica/graph/graph.h"

namespace poprun {

/// A phase's use of some variables; a phase is a region that calls parts for every micro-batch. Passes that keep
/// variables elsewhere bring them once for the whole phase.
struct PhaseUse {
  std::set<std::string> functions;  ///< That it calls.
  std::set<TensorId> reads;         ///< Before anything in the phase writes them.
  std::set<TensorId> writes;
  std::uint32_t ipu = 0;
};

PhaseUse use_in_phase(const Graph& graph, const Region& phase, const std::set<TensorId>& variables);

/// Tensors that only one phase names, with the regions before and after it.
std::set<TensorId> used_in_one_phase(const Graph& graph, const std::vector<Place>& phases);

/// The region after phase `p`, where what it wrote is stored: the one before the next phase.
Place behind(const std::vector<Place>& phases, std::size_t p);

/// The place of `distance` regions after another one of its function; before it, if negative.
Place beside(Place place, int distance);

/// Moves what a phased training step does for one phase to that phase, so that its gradients live no longer than the
/// phase does and its variables need not come back for their update:
///
///   begin     w0.acc = 0, w1.acc = 0                begin
///   phase 1   w1.acc += ..               ->         w1.acc = 0
///   phase 0   w0.acc += ..                          phase 1   w1.acc += ..
///   update    all_reduce(w0.acc, w1.acc)            all_reduce(w1.acc), w1 = sgd(w1, w1.acc)
///             w0 = sgd(w0, w0.acc)                  w0.acc = 0
///             w1 = sgd(w1, w1.acc)                  phase 0   w0.acc += ..
///                                                   update    all_reduce(w0.acc), ..
///
/// A gradient's constant first value moves to the region before the first phase that uses it. Of the update, an
/// operation moves to the region after the last phase that matters to it: one that writes what it reads, or names what
/// it writes. So weights whose update depends on all gradients, such as with a limit for their norm, change at the end.
/// Operations that change no variable move no further than needed, and those that send to the host stay. An all-reduce
/// is divided for that.
///
/// A step that ends early has changed nothing all the same: every micro-batch has been read by the end of the last
/// forward phase.
///
/// Requires: regions as `make_pipeline` makes them; step.phases is set.
void order_phases(Graph& graph, const TrainingStep& step);

}  // namespace poprun
