#include "replica/program/mapping.h"

#include <algorithm>

#include <fmt/format.h>

namespace poprun {
namespace {

/// A box of the grid: one part of every dimension.
struct Box {
  std::vector<std::int64_t> begin;
  std::vector<std::int64_t> size;
  std::int64_t elements = 1;
  std::int64_t tile = 0;  ///< Relative to Mapping::first; shares are not applied.
};

/// Calls call(box) for all boxes; the innermost dimension varies fastest.
template <typename Call>
void visit_boxes(const Mapping& mapping, Call call) {
  const std::size_t rank = mapping.axes.size();
  std::vector<std::int64_t> part(rank, 0);
  Box box;
  box.begin.resize(rank);
  box.size.resize(rank);
  while (true) {
    box.elements = 1;
    box.tile = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      const GridAxis& axis = mapping.axes[d];
      box.begin[d] = part[d] * axis.part;
      box.size[d] = std::min(axis.part, axis.extent - box.begin[d]);
      box.elements *= box.size[d];
      box.tile += part[d] * axis.stride;
    }
    call(box);
    std::size_t d = rank;
    while (d > 0 && ++part[d - 1] == mapping.axes[d - 1].parts()) {
      part[--d] = 0;
    }
    if (d == 0) {
      return;
    }
  }
}

/// Returns the tiles of a box's pieces, relative to the tile of the box.
std::vector<std::int64_t> tiles_of_pieces(const Mapping& mapping) {
  std::vector<std::int64_t> tiles = {0};
  for (const Share& share : mapping.shares) {
    std::vector<std::int64_t> next;
    for (const std::int64_t tile : tiles) {
      for (std::int64_t i = 0; i < share.tiles; ++i) {
        next.push_back(tile + i * share.stride);
      }
    }
    tiles = std::move(next);
  }
  return tiles;
}

/// A box, cut into pieces. The first pieces may have one more grain than the other pieces; the last grain may be short.
class Pieces {
 public:
  Pieces(std::int64_t elements, std::int64_t grain, std::int64_t pieces) : elements_(elements), grain_(grain) {
    const std::int64_t grains = ceil_div(elements, grain);
    each_ = grains / pieces;
    longer_ = grains % pieces;
  }

  [[nodiscard]] std::int64_t begin(std::int64_t piece) const {
    return std::min(elements_, (each_ * piece + std::min(piece, longer_)) * grain_);
  }

 private:
  std::int64_t elements_;
  std::int64_t grain_;
  std::int64_t each_ = 0;    ///< Minimum number of grains in a piece.
  std::int64_t longer_ = 0;  ///< Number of pieces that have one more grain.
};

/// Calls call(range) for elements [begin, end) of a box, counted in the order of memory.
template <typename Call>
void visit_rows(const Mapping& mapping, const Box& box, std::int64_t begin, std::int64_t end, Call call) {
  // Dimensions after `inner` are not cut, so they form rows without gaps.
  std::size_t inner = mapping.axes.size();
  std::int64_t row = 1;
  while (inner > 0) {
    --inner;
    row *= box.size[inner];
    if (box.size[inner] != mapping.axes[inner].extent) {
      break;
    }
  }
  while (begin < end) {
    std::int64_t place = 0;
    std::int64_t stride = 1;
    std::int64_t rest = begin;
    for (std::size_t d = mapping.axes.size(); d-- > 0;) {
      place += (box.begin[d] + rest % box.size[d]) * stride;
      rest /= box.size[d];
      stride *= mapping.axes[d].extent;
    }
    const std::int64_t count = std::min(end - begin, row - begin % row);
    call(ElementRange{place, count});
    begin += count;
  }
}

}  // namespace

std::int64_t Mapping::elements() const {
  std::int64_t product = 1;
  for (const GridAxis& axis : axes) {
    product *= axis.extent;
  }
  return product;
}

Mapping linear_mapping(std::int64_t elements, std::int64_t grain, std::int64_t tiles) {
  return {{{elements, elements, 0}}, {{tiles, 1}}, grain, 0};
}

std::vector<std::int64_t> elements_by_tile(const Mapping& mapping, std::int64_t tiles) {
  std::vector<std::int64_t> held(static_cast<std::size_t>(tiles));
  const std::vector<std::int64_t> pieces = tiles_of_pieces(mapping);
  const auto count = static_cast<std::int64_t>(pieces.size());
  visit_boxes(mapping, [&](const Box& box) {
    const Pieces cut(box.elements, mapping.grain, count);
    std::int64_t begin = 0;
    for (std::int64_t p = 0; begin < box.elements; ++p) {
      const std::int64_t end = cut.begin(p + 1);
      const std::int64_t tile = mapping.first + box.tile + pieces[static_cast<std::size_t>(p)];
      held[static_cast<std::size_t>(tile < tiles ? tile : tile % tiles)] += end - begin;
      begin = end;
    }
  });
  return held;
}

void visit_elements(const Mapping& mapping, std::int64_t tiles,
                    const std::function<void(std::int64_t tile, ElementRange)>& visit) {
  const std::vector<std::int64_t> pieces = tiles_of_pieces(mapping);
  const auto count = static_cast<std::int64_t>(pieces.size());
  visit_boxes(mapping, [&](const Box& box) {
    const Pieces cut(box.elements, mapping.grain, count);
    for (std::int64_t p = 0; p < count; ++p) {
      const std::int64_t tile = mapping.first + box.tile + pieces[static_cast<std::size_t>(p)];
      visit_rows(mapping, box, cut.begin(p), cut.begin(p + 1),
                 [&](const ElementRange& range) { visit(tile % tiles, range); });
    }
  });
}

proto::Mapping to_proto(const Mapping& mapping) {
  const auto count = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  proto::Mapping target;
  for (const GridAxis& axis : mapping.axes) {
    proto::GridAxis& added = *target.add_axes();
    added.set_extent(count(axis.extent));
    added.set_part(count(axis.part));
    added.set_stride(count(axis.stride));
  }
  for (const Share& share : mapping.shares) {
    proto::Share& added = *target.add_shares();
    added.set_tiles(count(share.tiles));
    added.set_stride(count(share.stride));
  }
  target.set_grain(count(mapping.grain));
  target.set_first(count(mapping.first));
  return target;
}

Mapping from_proto(const proto::Mapping& mapping) {
  const auto count = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
  Mapping target;
  for (const proto::GridAxis& axis : mapping.axes()) {
    target.axes.push_back({count(axis.extent()), count(axis.part()), count(axis.stride())});
  }
  for (const proto::Share& share : mapping.shares()) {
    target.shares.push_back({count(share.tiles()), count(share.stride())});
  }
  target.grain = count(mapping.grain());
  target.first = count(mapping.first());
  return target;
}

std::string to_text(const Mapping& mapping) {
  std::string text;
  for (const GridAxis& axis : mapping.axes) {
    text += fmt::format("{}{}", text.empty() ? "" : " x ", axis.extent);
    if (axis.parts() > 1) {
      text += fmt::format("/{}", axis.parts());
    }
  }
  std::int64_t shared = 1;
  for (const Share& share : mapping.shares) {
    shared *= share.tiles;
  }
  if (shared > 1) {
    text += fmt::format(", shared by {}", shared);
  }
  if (mapping.first > 0) {
    text += fmt::format(", from tile {}", mapping.first);
  }
  return text;
}

}  // namespace poprun
