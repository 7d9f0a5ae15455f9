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

/// Whether all tensors of a copy, stash or restore lie on the tiles of one IPU.
bool is_within_ipu(const Graph& graph, const Operation& operation);

/// How many elements of a mapping each tile holds.
struct TileCounts {
  std::vector<std::int64_t> by_tile;
  std::int64_t most = 0;  ///< What the fullest tile holds.
};

/// Bytes that tiles receive of a tensor that does not lie where an operation works.
struct Received {
  /// The input that is held there while the operation runs; nothing: a result, which is received where it lies.
  std::optional<std::size_t> operand = {};
  const TileCounts* counts = nullptr;  ///< Lives as long as the Moves.
  std::int64_t width = 1;              ///< Bytes of each of them.

  /// Bytes that the tile that receives most receives.
  [[nodiscard]] Bytes most() const { return Bytes{counts->most * width}; }

  /// Bytes by tile.
  [[nodiscard]] std::vector<std::int64_t> row() const;
};

/// Where operations work and what goes from tile to tile for it: what memory (compiler/tiles) and time (compiler/cost)
/// are both counted from.
///
///   operators         work where their largest tensor lies, of equal ones the first result.
///                     Operands that lie otherwise are brought there if they have as many
///                     elements, else spread evenly, 8 bytes together; results that lie otherwise
///                     go from there to where they lie
///   stash, restore    an entry that lies otherwise than in the stash goes to where it is written
///   copies            within an IPU, the same
///   products          work as they are planned. Operands that lie otherwise are regrouped, spread
///                     evenly, unless the plan rearranges them anyway
///
/// Whole tensors are counted, also what a tile has already. Copies between IPUs and streams go through buffers, with
/// time faces of their own.
///
/// cost: each different mapping is counted once. threads: one at a time.
class Moves {
 public:
  Moves(const Graph& graph, const std::vector<Mapping>& mappings, const Device& device)
      : graph_(graph), mappings_(mappings), device_(device) {}

  /// The tensor that lies where an operator works that is no product, or where a stash, restore or copy writes: of a
  /// stash, the entry. Requires: the operation has tensors.
  [[nodiscard]] TensorId home(const Operation& operation) const;

  /// Nothing for operations that are none of the above; for products see regrouped().
  std::vector<Received> received(const Operation& operation);

  /// The operands of a planned product that lie otherwise than its tiles read them.
  std::vector<Received> regrouped(const Operation& operation, const PlannedProduct& planned);

  /// Elements of a tensor by tile.
  const TileCounts& counts(TensorId tensor) { return counts(mappings_[index_of(tensor)]); }

  /// Bytes spread evenly over all tiles, 8 together.
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
  std::unordered_map<Mapping, TileCounts, Hash> counts_;  ///< Looked up only, never walked.
};

}  // namespace poprun
