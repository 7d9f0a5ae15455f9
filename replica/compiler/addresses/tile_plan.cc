#include "replica/compiler/addresses/tile_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "replica/compiler/addresses/memory_plan.h"

namespace poprun {
namespace {

/// Returns, for each tile, the index of its class. Tiles of one class have the same number of bytes in every row.
std::vector<std::uint32_t> classes_of(const TileClaims& claims) {
  std::vector<std::uint32_t> classes(static_cast<std::size_t>(claims.tiles()), 0);
  for (const TileRow& row : claims.rows()) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> refined;
    auto last = refined.end();  // Neighbouring tiles are mostly in the same class.
    for (std::size_t tile = 0; tile < classes.size(); ++tile) {
      const std::pair key{classes[tile], row[tile]};
      if (last == refined.end() || last->first != key) {
        last = refined.emplace(key, static_cast<std::uint32_t>(refined.size())).first;
      }
      classes[tile] = last->second;
    }
  }
  return classes;
}

bool is_whole_run(const std::vector<Span>& spans, std::uint32_t steps) {
  return spans.size() == 1 && spans[0] == Span{0, steps - 1};
}

Result<TileClass> plan_class(const TileClaims& claims, std::vector<std::uint32_t> tiles, std::uint32_t steps) {
  const std::size_t tile = tiles.front();
  TileClass result;
  result.tiles = std::move(tiles);

  // Claims with the same live range are stacked as one block.
  std::vector<std::int64_t> block(claims.spans().size());
  result.offsets.resize(claims.claims().size());
  for (std::size_t i = 0; i < claims.claims().size(); ++i) {
    const TileClaim& claim = claims.claims()[i];
    result.offsets[i] = Bytes{block[claim.spans]};
    block[claim.spans] += claims.rows()[claim.row][tile];
  }
  std::vector<Claim> blocks;
  std::vector<std::size_t> index(block.size());
  for (std::size_t s = 0; s < block.size(); ++s) {
    const std::vector<Span>& spans = claims.spans()[s];
    if (block[s] > 0) {
      index[s] = blocks.size();
      blocks.push_back({spans, Bytes{block[s]}});
    }
    if (is_whole_run(spans, steps)) {
      result.always_live += Bytes{block[s]};
    }
  }
  const MemoryPlan plan = plan_memory(blocks, kTileAlignment);
  if (const Status status = verify_plan(blocks, plan, kTileAlignment); !status) {
    return fail(ErrorCode::kBug, fmt::format("tile {}: {}", tile, status.error().message));
  }
  for (std::size_t i = 0; i < claims.claims().size(); ++i) {
    const TileClaim& claim = claims.claims()[i];
    if (claims.rows()[claim.row][tile] > 0) {
      result.offsets[i] += plan.offsets[index[claim.spans]];
    }
  }
  result.peak = plan.peak;
  result.lower_bound = plan.lower_bound;
  result.worst_step = plan.worst_step;
  return result;
}

}  // namespace

const std::vector<Category>& all_categories() {
  static const std::vector<Category> kAll = {Category::kVariable,     Category::kStash,       Category::kTemporary,
                                             Category::kVertexCode,   Category::kVertexState, Category::kControlCode,
                                             Category::kExchangeCode, Category::kLinkBuffer,  Category::kHostBuffer,
                                             Category::kGap};
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

void TileClaims::add(TileClaim claim, std::vector<Span> spans, const std::vector<std::int64_t>& bytes_by_tile) {
  TileRow row;
  row.reserve(bytes_by_tile.size());
  for (const std::int64_t bytes : bytes_by_tile) {
    // The cap keeps sums of rows within 64 bits; it is far above a tile's memory.
    const std::int64_t aligned = align_up(Bytes{bytes}, kTileAlignment).count();
    row.push_back(
        static_cast<std::uint32_t>(std::min<std::int64_t>(aligned, std::numeric_limits<std::uint32_t>::max() - 7)));
  }
  if (spans.empty() || std::ranges::all_of(row, [](std::uint32_t b) { return b == 0; })) {
    return;
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> key;
  for (const Span& span : spans) {
    key.emplace_back(span.first, span.last);
  }
  const auto [at_spans, new_spans] = spans_index_.emplace(std::move(key), static_cast<std::uint32_t>(spans_.size()));
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

std::uint32_t TilePlan::fullest() const {
  const auto highest = std::ranges::max_element(classes, {}, &TileClass::peak);
  return static_cast<std::uint32_t>(highest - classes.begin());
}

Bytes TilePlan::total_peak() const {
  Bytes total;
  for (const TileClass& one : classes) {
    total += one.peak * static_cast<std::int64_t>(one.tiles.size());
  }
  return total;
}

LiveBytes live_bytes(const TileClaims& claims, std::uint32_t steps) {
  std::vector<std::int64_t> row_bytes;
  for (const TileRow& row : claims.rows()) {
    row_bytes.push_back(std::accumulate(row.begin(), row.end(), std::int64_t{0}));
  }
  LiveBytes live;
  std::vector<std::int64_t> change(steps + std::size_t{1});
  for (const TileClaim& claim : claims.claims()) {
    const std::vector<Span>& spans = claims.spans()[claim.spans];
    for (const Span& span : spans) {
      change[span.first] += row_bytes[claim.row];
      change[span.last + 1] -= row_bytes[claim.row];
    }
    if (is_whole_run(spans, steps)) {
      live.always += Bytes{row_bytes[claim.row]};
    }
  }
  Bytes now;
  for (std::uint32_t step = 0; step < steps; ++step) {
    now += Bytes{change[step]};
    if (now > live.most) {
      live.most = now;
      live.worst_step = step;
    }
  }
  return live;
}

Result<TilePlan> plan_tiles(const TileClaims& claims, std::uint32_t steps) {
  TilePlan plan;
  plan.class_of_tile = classes_of(claims);
  std::vector<std::vector<std::uint32_t>> tiles;
  for (std::uint32_t tile = 0; tile < plan.class_of_tile.size(); ++tile) {
    tiles.resize(std::max<std::size_t>(tiles.size(), plan.class_of_tile[tile] + 1));
    tiles[plan.class_of_tile[tile]].push_back(tile);
  }
  for (std::vector<std::uint32_t>& one : tiles) {
    POPRUN_ASSIGN(TileClass planned, plan_class(claims, std::move(one), steps));
    plan.classes.push_back(std::move(planned));
  }
  return plan;
}

}  // namespace poprun
