#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/techniques/recomputation/kept.h"
#include "replica/graph/graph.h"

namespace poprun {

/// A place between two operations of a list, named by the number of operations before it.
using CutPlaces = std::vector<std::uint32_t>;

/// Cuts a list of operations into segments of at most `limit` bytes, through places that together cost least; the first
/// such choice. An operation above the limit is a segment of its own.
///
/// `bytes[i]`: what operation i adds to its segment. `cost[i]`: bytes of a cut after operation i. Cost: linear.
CutPlaces cut_at_narrow_places(const std::vector<std::int64_t>& bytes, const std::vector<std::int64_t>& cost,
                               std::int64_t limit);

/// Inputs of the standard mode.
struct StandardGoal {
  std::vector<std::uint32_t> ipu_of_stage;
  std::vector<std::int64_t> stash_lengths;  ///< By stage.
  std::vector<std::int64_t> work;           ///< By forward operation, in cycles.
  Bytes capacity;                           ///< An IPU's memory.
  double proportion = 1;                    ///< How much of it may be used.

  [[nodiscard]] Bytes memory() const {
    return Bytes{static_cast<std::int64_t>(proportion * static_cast<double>(capacity.count()))};
  }
};

struct StandardChoice {
  std::vector<bool> kept;  ///< By tensor.
  Bytes fullest;           ///< About what the fullest IPU needs.
  double recomputed = 0;   ///< Proportion of the forward pass's work that runs again.
};

/// Chooses what to keep so that every IPU stays within its memory at the least recomputed work; if that is impossible,
/// what needs the least memory. What the job has chosen by name stays so.
///
/// Each IPU's choice is the best of a family. An activation is kept if making it again costs more cycles a byte than a
/// threshold, so that cheap ones (activation functions, dropout, additions) are recomputed before products; the rest of
/// a stage is cut at its narrowest places into segments of a size limit, whose inputs are kept too. Last, the end of
/// each stage is kept as far as memory lasts, since its backward operations come first.
///
/// Deterministic. Cost: linear in the operations, some sixty times.
StandardChoice choose_standard(const Graph& graph, const MicroBatch& micro_batch, const Region& update,
                               const ChosenByName& chosen, const StandardGoal& goal);

/// The note about the choice.
std::string note_of(const StandardChoice& choice, const StandardGoal& goal);

}  // namespace poprun
