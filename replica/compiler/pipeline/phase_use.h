#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "replica/graph/graph.h"

namespace poprun {

/// What a phase, a region that calls parts for every micro-batch, does with some variables. Passes
/// that keep variables elsewhere bring them once for the whole phase.
struct PhaseUse {
  std::set<std::string> functions;  ///< That it calls.
  std::set<TensorId> reads;         ///< Before anything in the phase writes them.
  std::set<TensorId> writes;
  std::uint32_t ipu = 0;
};

PhaseUse use_in_phase(const Graph& graph, const Region& phase, const std::set<TensorId>& variables);

/// The place of `distance` regions after another one of its function; before it, if negative.
Place beside(Place place, int distance);

}  // namespace poprun
