#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/program.pb.h"
#include "replica/base/units.h"

/// The tiles of an IPU that hold the parts of a tensor.
namespace poprun {

/// A dimension of a tensor, cut into parts.
struct GridAxis {
  std::int64_t extent = 1;  ///< Number of elements along it.
  std::int64_t part = 1;    ///< Elements per part, from 1 to extent; the last part may have fewer.
  std::int64_t stride = 0;  ///< Tiles from one part to the next; 0 if all parts are on one tile.

  [[nodiscard]] std::int64_t parts() const { return ceil_div(extent, part); }
  friend bool operator==(const GridAxis&, const GridAxis&) = default;
};

/// Tiles that hold one part together because all of them use it.
struct Share {
  std::int64_t tiles = 1;
  std::int64_t stride = 1;  ///< Distance from one of these tiles to the next.

  friend bool operator==(const Share&, const Share&) = default;
};

/// A grid with strides. Each of the tensor's dimensions, in the order of its elements in memory, is cut into parts; one
/// part of every dimension makes a box. The elements of a box, in order, are spread in pieces of equal size over the
/// tiles that share it.
///
///   f32[4,6] cut {4, 2, stride 2} {6, 3, stride 1}       f32[6] shared by 4 tiles, grain 2
///
///       0 0 0 | 1 1 1                                        0 0 1 1 2 2
///       0 0 0 | 1 1 1
///       ------+------     each number is a tile
///       2 2 2 | 3 3 3
///       2 2 2 | 3 3 3
///
/// Tiles are counted from `first` and wrap around: tile 0 follows the last one.
struct Mapping {
  std::vector<GridAxis> axes;  ///< Outermost first; the product of their extents is the number of elements.
  std::vector<Share> shares;   ///< Outermost first.
  std::int64_t grain = 1;      ///< Elements that stay together when a box is shared.
  std::int64_t first = 0;      ///< Tile of the first part.

  [[nodiscard]] std::int64_t elements() const;

  friend bool operator==(const Mapping&, const Mapping&) = default;
};

/// Maps all elements as one row, with one piece per tile. Pieces are multiples of `grain`, as equal as possible.
Mapping linear_mapping(std::int64_t elements, std::int64_t grain, std::int64_t tiles);

/// Returns the number of elements on each of `tiles` tiles. Requires: grain and all extents, parts and counts are
/// positive; part <= extent. Cost: boxes times sharing tiles.
std::vector<std::int64_t> elements_by_tile(const Mapping& mapping, std::int64_t tiles);

/// Elements [begin, begin + count) of a tensor, in memory order.
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// Visits every element once, in ranges, box by box and tile by tile. A tile stores its elements in the order of the
/// visits. Requires: the same as for elements_by_tile.
void visit_elements(const Mapping& mapping, std::int64_t tiles,
                    const std::function<void(std::int64_t tile, ElementRange)>& visit);

/// These functions convert a mapping to its form in a Program, and back.
proto::Mapping to_proto(const Mapping& mapping);
Mapping from_proto(const proto::Mapping& mapping);

/// Returns text like "4/2 x 6/3" (each dimension's extent and number of parts), "shared by 4" and "from tile 7".
std::string to_text(const Mapping& mapping);

}  // namespace poprun
