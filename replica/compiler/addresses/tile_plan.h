#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/compiler/lives/liveness.h"

namespace poprun {

/// The ways in which a tile's bytes are used, as reports distinguish them.
enum class Category : std::uint8_t {
  kVariable,      ///< Tensors.
  kStash,         ///< Tensors stored for the backward pass.
  kTemporary,     ///< Temporaries of an operation: rearranged operands, partial sums.
  kVertexCode,    ///< Compiled vertices.
  kVertexState,   ///< Arguments of vertices.
  kControlCode,   ///< The program: its sequence of compute sets and exchanges.
  kExchangeCode,  ///< Code for exchanges between the tiles of an IPU.
  kLinkBuffer,    ///< Exchange code and buffers for other IPUs.
  kHostBuffer,    ///< Exchange code and buffers for the host.
  kGap,           ///< Unused bytes, lost to placement constraints.
};

/// Returns all categories, in the order in which reports show them.
const std::vector<Category>& all_categories();

/// Returns a category's name, such as "tensors" or "vertex code".
std::string_view to_text(Category category);

/// Bytes on each tile, in multiples of kTileAlignment.
using TileRow = std::vector<std::uint32_t>;

/// Addresses on a tile are multiples of this: a tile loads 64 bits at a time (poplibs, lib/poplin/ConvPlan.cpp) [D].
inline constexpr Bytes kTileAlignment{8};

inline constexpr std::uint32_t kNoStep = 0xffffffff;

struct TileClaim {
  Category category = Category::kVariable;
  std::vector<std::uint32_t> tensors = {};  ///< The tensors that share the bytes, if any.
  std::uint32_t step = kNoStep;             ///< The step that the bytes belong to, if any.
  std::uint32_t spans = 0;                  ///< Index into TileClaims::spans.
  std::uint32_t row = 0;                    ///< Index into TileClaims::rows.
};

/// The claims on one IPU. Equal rows of bytes per tile, and equal live ranges, are stored only once.
class TileClaims {
 public:
  explicit TileClaims(std::int64_t tiles) : tiles_(tiles) {}

  /// Adds a claim, with each tile's bytes rounded up to kTileAlignment. Does nothing if there are no bytes or no spans.
  void add(TileClaim claim, std::vector<Span> spans, const std::vector<std::int64_t>& bytes_by_tile);

  [[nodiscard]] std::int64_t tiles() const { return tiles_; }
  [[nodiscard]] const std::vector<TileClaim>& claims() const { return claims_; }
  [[nodiscard]] const std::vector<std::vector<Span>>& spans() const { return spans_; }
  [[nodiscard]] const std::vector<TileRow>& rows() const { return rows_; }

 private:
  std::int64_t tiles_;
  std::vector<TileClaim> claims_;
  std::vector<std::vector<Span>> spans_;
  std::vector<TileRow> rows_;
  std::map<std::vector<std::pair<std::uint32_t, std::uint32_t>>, std::uint32_t> spans_index_;
  std::map<TileRow, std::uint32_t> rows_index_;
};

/// Tiles with identical claims, which are planned together.
struct TileClass {
  std::vector<std::uint32_t> tiles;  ///< In ascending order.
  Bytes peak;                        ///< End of the highest byte in use.
  Bytes lower_bound;                 ///< Maximum live bytes at any step; no plan has a lower peak.
  Bytes always_live;                 ///< Bytes of claims that live for the whole run.
  std::uint32_t worst_step = 0;      ///< The first step at which `lower_bound` bytes are live.
  /// offsets[i] is the offset of claim i of TileClaims, if the claim has bytes on these tiles.
  std::vector<Bytes> offsets;
};

struct TilePlan {
  std::vector<TileClass> classes;  ///< In the order of their first tiles.
  std::vector<std::uint32_t> class_of_tile;

  /// Returns the class with the highest peak; the first if several tie.
  [[nodiscard]] std::uint32_t fullest() const;
  [[nodiscard]] Bytes total_peak() const;
};

/// Live bytes on all tiles of an IPU together.
struct LiveBytes {
  Bytes most;                    ///< Maximum live bytes at any step.
  std::uint32_t worst_step = 0;  ///< The first step with that many live bytes.
  Bytes always;                  ///< Bytes that live for the whole run.
};

LiveBytes live_bytes(const TileClaims& claims, std::uint32_t steps);

/// Plans each class with plan_memory, with all claims of the same live range stacked as one block. Checks the plan
/// with verify_plan. `steps` is the number of steps of the whole run. Deterministic. Errors: kBug if verify_plan
/// rejects a plan. Cost: that of plan_memory, times the number of classes.
Result<TilePlan> plan_tiles(const TileClaims& claims, std::uint32_t steps);

}  // namespace poprun
