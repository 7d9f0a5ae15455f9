#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/tiles/plans.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/program/mapping.h"

namespace poprun {

/// Returns whether all tensors of a copy, stash or restore are on the tiles of one IPU.
bool is_within_ipu(const Graph& graph, const Operation& operation);

/// The number of elements of a mapping on each tile.
struct TileCounts {
  std::vector<std::int64_t> by_tile;
  std::int64_t most = 0;  ///< Elements on the fullest tile.
};

/// Bytes of a tensor that tiles receive because the tensor's mapping differs from the one that the operation uses.
struct Received {
  /// Index of the input that is held while the operation runs; nothing for a result, which its own tiles receive.
  std::optional<std::size_t> operand = {};
  const TileCounts* counts = nullptr;  ///< Lives as long as the Moves.
  std::int64_t width = 1;              ///< Bytes per element.

  [[nodiscard]] Bytes most() const { return Bytes{counts->most * width}; }

  [[nodiscard]] std::vector<std::int64_t> row() const;
};

/// Determines on which tiles operations work, and what these tiles exchange for them. The memory (addresses/demand.h)
/// and the time (operation_time.h) of operations follow from this.
///
///   operators         work on the tiles of their largest tensor (if several tie, results come first).
///                     Operands with a different mapping are moved there if they have as many elements
///                     as that tensor, otherwise spread evenly in grains of 8 bytes; results with a
///                     different mapping are moved to their own tiles
///   stash, restore    move an entry to the tiles where it is written, if the mappings differ
///   copies            within an IPU, move their tensors in the same way
///   products          work as planned. Operands with a different mapping are regrouped and spread evenly,
///                     unless the plan rearranges them anyway
///
/// Each tensor is counted in full, including the elements that a tile already holds. Streams, and copies between IPUs,
/// have buffers and cost models of their own. Not thread-safe. Cost: each distinct mapping is counted once.
class Moves {
 public:
  Moves(const Graph& graph, const std::vector<Mapping>& mappings, const Device& device)
      : graph_(graph), mappings_(mappings), device_(device) {}

  /// Returns the tensor on whose tiles an operator other than a product works, or to whose tiles a restore or copy
  /// writes. For a stash, this is the entry. Requires: the operation has tensors.
  [[nodiscard]] TensorId home(const Operation& operation) const;

  /// Returns what tiles receive; nothing for operations that are not listed above. For products, see regrouped().
  std::vector<Received> received(const Operation& operation);

  /// Returns the operands of a planned product whose mapping is not the one that its tiles read.
  std::vector<Received> regrouped(const Operation& operation, const PlannedProduct& planned);

  const TileCounts& counts(TensorId tensor) { return counts(mappings_[index_of(tensor)]); }

  /// Returns the counts of `bytes` if they are spread evenly over all tiles, in grains of 8.
  const TileCounts& even(Bytes bytes);

 private:
  struct Hash {
    std::size_t operator()(const Mapping& mapping) const;
  };

  const TileCounts& counts(const Mapping& mapping);
  [[nodiscard]] bool lies_like(TensorId tensor, TensorId home) const;

  const Graph& graph_;
  const std::vector<Mapping>& mappings_;
  const Device& device_;
  TileCounts nothing_;
  std::unordered_map<Mapping, TileCounts, Hash> counts_;  ///< Never iterated over, so its order does not matter.
};

}  // namespace poprun
