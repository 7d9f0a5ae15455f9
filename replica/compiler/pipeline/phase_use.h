#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

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

/// Tensors that only one phase names, with the regions before and after it.
std::set<TensorId> used_in_one_phase(const Graph& graph, const std::vector<Place>& phases);

/// The region after phase `p`, where what it wrote is stored: the one before the next phase.
Place behind(const std::vector<Place>& phases, std::size_t p);

/// The place of `distance` regions after another one of its function; before it, if negative.
Place beside(Place place, int distance);

}  // namespace poprun
