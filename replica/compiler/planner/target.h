#pragma once

#include <cstdint>

#include "replica/base/units.h"
#include "replica/device/device.h"

namespace poprun::planner {

/// A chip as the planner sees it: the rates of one tile, by arithmetic where they depend on it.
struct Target {
  std::int64_t tiles = 0;
  Bytes bytes_per_tile;
  std::int64_t workers = 6;                   ///< Threads of a tile that take turns. [D]
  std::int64_t exchange_bytes_per_cycle = 0;  ///< Received by one tile.
  std::int64_t load_bytes_per_cycle = 0;
  std::int64_t tiles_per_exchange_bus = 2;  ///< They receive the same data at double rate. [2nd]

  /// Multiply-accumulates of the matrix unit in a cycle.
  std::int64_t macs_per_cycle = 0;
  /// Columns of the matrix unit: output channels that it sums at once. Each takes 4 products of
  /// float16 or 1 of float32 in a cycle [I]: Mk2 has 16, 8 if float16 is summed in float32.
  std::int64_t columns = 0;
  /// Input channels of a full block of weights: 16 of float16, 8 of float32. [D] poplibs.
  std::int64_t block_inputs = 0;
  /// Elements that the vector unit takes in a cycle.
  std::int64_t vector_width = 0;

  Bytes element;  ///< An input's or weight's.
  Bytes partial;  ///< A sum's.

  /// `permille` thousandths of a tile, rounded down.
  [[nodiscard]] Bytes share(std::int64_t permille) const {
    return Bytes{bytes_per_tile.count() * permille / 1000};
  }
};

/// Requires: the device has at least one tile.
Target target_of(const Device& device, Arithmetic arithmetic);

}  // namespace poprun::planner
