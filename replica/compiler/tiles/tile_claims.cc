#include "replica/compiler/tiles/tile_claims.h"

#include <algorithm>
#include <limits>

namespace poprun {

const std::vector<Category>& all_categories() {
  static const std::vector<Category> kAll = {Category::kVariable,     Category::kStash,
                                             Category::kTemporary,    Category::kVertexCode,
                                             Category::kVertexState,  Category::kControlCode,
                                             Category::kExchangeCode, Category::kLinkBuffer,
                                             Category::kHostBuffer,   Category::kGap};
  return kAll;
}

std::string_view to_text(Category category) {
  switch (category) {
    case Category::kVariable:
      return "tensors";
    case Category::kStash:
      return "stashes";
    case Category::kTemporary:
      return "temporaries";
    case Category::kVertexCode:
      return "vertex code";
    case Category::kVertexState:
      return "vertex state";
    case Category::kControlCode:
      return "control code";
    case Category::kExchangeCode:
      return "exchange code";
    case Category::kLinkBuffer:
      return "between IPUs";
    case Category::kHostBuffer:
      return "host exchange";
    case Category::kGap:
      return "gaps";
  }
  return "";
}

void TileClaims::add(TileClaim claim, std::vector<Span> spans,
                     const std::vector<std::int64_t>& bytes_by_tile) {
  TileRow row;
  row.reserve(bytes_by_tile.size());
  for (const std::int64_t bytes : bytes_by_tile) {
    // More than a tile can hold stays more, and sums of rows stay within 64 bits.
    const std::int64_t aligned = align_up(Bytes{bytes}, kTileAlignment).count();
    row.push_back(static_cast<std::uint32_t>(
        std::min<std::int64_t>(aligned, std::numeric_limits<std::uint32_t>::max() - 7)));
  }
  if (spans.empty() || std::ranges::all_of(row, [](std::uint32_t b) { return b == 0; })) {
    return;
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> key;
  for (const Span& span : spans) {
    key.emplace_back(span.first, span.last);
  }
  const auto [at_spans, new_spans] =
      spans_index_.emplace(std::move(key), static_cast<std::uint32_t>(spans_.size()));
  if (new_spans) {
    spans_.push_back(std::move(spans));
  }
  const auto [at_row, new_row] = rows_index_.emplace(row, static_cast<std::uint32_t>(rows_.size()));
  if (new_row) {
    rows_.push_back(std::move(row));
  }
  claim.spans = at_spans->second;
  claim.row = at_row->second;
  claims_.push_back(claim);
}

}  // namespace poprun
