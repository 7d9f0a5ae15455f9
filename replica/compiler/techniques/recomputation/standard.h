#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replica/base/note.h"
#include "replica/base/units.h"
#include "replica/compiler/techniques/recomputation/kept.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Places between operations of a list, each given by the number of operations before it.
using CutPlaces = std::vector<std::uint32_t>;

/// Cuts a list of operations into segments of at most `limit` bytes, at the places that together cost the least (if
/// choices tie, the first). An operation above the limit is a segment of its own. Operation i adds `bytes[i]` to its
/// segment, and a cut after it costs `cost[i]` bytes. Cost: linear.
CutPlaces cut_at_narrow_places(const std::vector<std::int64_t>& bytes, const std::vector<std::int64_t>& cost,
                               std::int64_t limit);

struct StandardGoal {
  std::vector<std::uint32_t> ipu_of_stage;
  std::vector<std::int64_t> stash_lengths;  ///< Indexed by stage.
  std::vector<std::int64_t> work;           ///< Cycles of each forward operation.
  Bytes capacity;                           ///< An IPU's memory.
  double proportion = 1;                    ///< Fraction of `capacity` that may be used.

  [[nodiscard]] Bytes memory() const {
    return Bytes{static_cast<std::int64_t>(proportion * static_cast<double>(capacity.count()))};
  }
};

struct StandardChoice {
  std::vector<bool> kept;  ///< Indexed by tensor.
  Bytes fullest;           ///< Estimated need of the fullest IPU.
  double recomputed = 0;   ///< Fraction of the forward pass's work that runs again.
};

/// Chooses the activations to keep. Every IPU meets the memory goal with the least recomputed work or, if it cannot
/// meet the goal, needs as little memory as possible. Activations that the job has chosen by name stay as chosen.
///
/// Each IPU uses the best of several choices. An activation is kept if recomputing it costs more cycles per byte than a
/// threshold, so that cheap ones (activation functions, dropout, additions) are recomputed in preference to products.
/// The rest of a stage is cut at its narrowest places into segments of limited size, whose inputs are kept, too.
/// Finally, each stage keeps as many of its last activations as fit, because their backward operations run first.
/// Deterministic. Cost: about sixty linear passes over the operations.
StandardChoice choose_standard(const Graph& graph, const MicroBatch& micro_batch, const Region& update,
                               const ChosenByName& chosen, const StandardGoal& goal);

Note note_of(const StandardChoice& choice, const StandardGoal& goal);

}  // namespace poprun
