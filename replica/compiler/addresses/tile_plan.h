#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/compiler/lives/liveness.h"

/// The contents of one IPU's tiles over time.
/// Where every byte of every tile of an IPU lies.
namespace poprun {

/// The purpose of bytes of a tile, for reports.
enum class Category : std::uint8_t {
  kVariable,      ///< A tensor's.
  kStash,         ///< A tensor's that waits for the way back.
  kTemporary,     ///< An operation's own, while it runs: operands rearranged, partial sums.
  kVertexCode,    ///< Compiled vertices.
  kVertexState,   ///< Their arguments.
  kControlCode,   ///< The program: which compute sets and exchanges follow each other.
  kExchangeCode,  ///< Between the tiles of an IPU.
  kLinkBuffer,    ///< Exchange code and buffers for other IPUs.
  kHostBuffer,    ///< Exchange code and buffers for the host.
  kGap,           ///< Nothing, where placement needs room.
};

/// All of them, in the order of reports.
const std::vector<Category>& all_categories();

/// "variables", "vertex code" ...
std::string_view to_text(Category category);

/// Bytes by tile, in multiples of kTileAlignment.
using TileRow = std::vector<std::uint32_t>;

/// Every address on a tile is a multiple of this: a tile loads 64 bits at once (poplibs, lib/poplin/ConvPlan.cpp) [D].
inline constexpr Bytes kTileAlignment{8};

inline constexpr std::uint32_t kNoStep = 0xffffffff;

/// Bytes on tiles, for some steps.
struct TileClaim {
  Category category = Category::kVariable;
  std::vector<std::uint32_t> tensors = {};  ///< Whose they are, if tensors': aliases share them.
  std::uint32_t step = kNoStep;             ///< Whose they are, if a step's.
  std::uint32_t spans = 0;                  ///< Index into TileClaims::spans.
  std::uint32_t row = 0;                    ///< Index into TileClaims::rows.
};

/// The claims on one IPU. Many tensors lie alike and live alike, so both are stored once.
class TileClaims {
 public:
  explicit TileClaims(std::int64_t tiles) : tiles_(tiles) {}

  /// Rounds each tile's bytes up to kTileAlignment. Without effect where there are none, or no spans.
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

/// Live bytes on all tiles of an IPU together.
struct LiveBytes {
  Bytes most;                    ///< At one step.
  std::uint32_t worst_step = 0;  ///< The first step at which they are.
  Bytes always;                  ///< During the whole run.
};

LiveBytes live_bytes(const TileClaims& claims, std::uint32_t steps);

/// Plans each class as plan_memory does, what lives alike in one block, and verifies it as verify_plan does. `steps`:
/// of the whole run.
///
/// Deterministic. Errors: kBug, the verifier refused a plan. Cost: that of plan_memory, times classes.
Result<TilePlan> plan_tiles(const TileClaims& claims, std::uint32_t steps);

}  // namespace poprun
