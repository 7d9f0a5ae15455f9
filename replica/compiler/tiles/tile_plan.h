#pragma once

#include <cstdint>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/compiler/tiles/tile_claims.h"

/// Where every byte of every tile of an IPU lies.
namespace poprun {

/// Tiles with equal claims, which are planned once.
struct TileClass {
  std::vector<std::uint32_t> tiles;  ///< Rising.
  Bytes peak;                        ///< End of the highest byte in use.
  Bytes lower_bound;                 ///< Most bytes live at one step; no plan has a lower peak.
  Bytes always_live;                 ///< Bytes of claims that live for the whole run.
  std::uint32_t worst_step = 0;      ///< The first step at which `lower_bound` bytes are live.
  /// offsets[i] places claim i of TileClaims, where it has bytes on these tiles.
  std::vector<Bytes> offsets;
};

struct TilePlan {
  std::vector<TileClass> classes;  ///< By their first tile.
  std::vector<std::uint32_t> class_of_tile;

  /// The class with the highest peak; the first of equals.
  [[nodiscard]] std::uint32_t fullest() const;
  /// Peaks of all tiles added up.
  [[nodiscard]] Bytes total_peak() const;
};

/// What is live on all tiles of an IPU together.
struct LiveBytes {
  Bytes most;                    ///< At one step.
  std::uint32_t worst_step = 0;  ///< The first step at which they are.
  Bytes always;                  ///< During the whole run.
};

LiveBytes live_bytes(const TileClaims& claims, std::uint32_t steps);

/// Plans each class as plan_memory does, what lives alike in one block, and verifies it as
/// verify_plan does. `steps`: of the whole run.
///
/// Deterministic. Errors: kBug, the verifier refused a plan. Cost: that of plan_memory, times
/// classes.
Result<TilePlan> plan_tiles(const TileClaims& claims, std::uint32_t steps);

}  // namespace poprun
