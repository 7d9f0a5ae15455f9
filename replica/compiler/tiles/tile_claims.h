#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/liveness/liveness.h"

/// What one IPU's tiles hold, and when.
namespace poprun {

/// What bytes of a tile are for, in reports.
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

/// Every address on a tile is a multiple of this: a tile loads 64 bits at once (ipu.md 1.2) [D].
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

  /// Rounds each tile's bytes up to kTileAlignment. Without effect where there are none, or no
  /// spans.
  void add(TileClaim claim, std::vector<Span> spans,
           const std::vector<std::int64_t>& bytes_by_tile);

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

}  // namespace poprun
