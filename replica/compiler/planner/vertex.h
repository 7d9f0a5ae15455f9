#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "replica/base/units.h"
#include "replica/device/device.h"
#include "replica/device/product.h"

/// Vertices: the code with which a tile computes its part of a product.
namespace poprun::planner {

/// A chip as the planner sees it: its tiles, and the rates of each of them for one kind of arithmetic.
struct Target {
  std::int64_t tiles = 0;
  Bytes bytes_per_tile;
  std::int64_t workers = 6;                   ///< Threads of a tile, which take turns. [D]
  std::int64_t exchange_bytes_per_cycle = 0;  ///< Bytes that one tile receives per cycle.
  std::int64_t load_bytes_per_cycle = 0;
  std::int64_t tiles_per_exchange_bus = 2;  ///< Tiles that can receive the same data at double rate. [2nd]

  /// Multiply-accumulates of the matrix unit per cycle.
  std::int64_t macs_per_cycle = 0;
  /// Columns of the matrix unit: output channels that it computes at the same time. Each column adds 4 products of
  /// float16 or 1 of float32 per cycle [I]. Mk2 has 16 columns, or 8 if float16 is summed in float32.
  std::int64_t columns = 0;
  /// Input channels of a full block of weights: 16 of float16, 8 of float32. [D] poplibs.
  std::int64_t block_inputs = 0;
  /// Elements that the vector unit processes per cycle.
  std::int64_t vector_width = 0;

  Bytes element;  ///< Size of an input or weight.
  Bytes partial;  ///< Size of a partial sum.

  /// Returns `permille` thousandths of a tile's memory, rounded down.
  [[nodiscard]] Bytes share(std::int64_t permille) const { return Bytes{bytes_per_tile.count() * permille / 1000}; }
};

/// Returns the device's rates for one kind of arithmetic. Requires: the device has at least one tile.
Target target_of(const Device& device, Arithmetic arithmetic);

enum class VertexKind : std::uint8_t {
  kAmp,   ///< Accumulating Matrix Product: blocks of weights in the matrix unit.
  kSlic,  ///< Windows of four kernel columns, for grouped convolutions with few channels.
  kHmac,  ///< Dot products along the input channels, in the vector unit.
};

/// A kind of vertex with its block sizes. Every tile's groups and channels are multiples of these sizes.
struct Vertex {
  VertexKind kind = VertexKind::kAmp;
  std::int64_t groups = 1;
  std::int64_t inputs = 1;
  std::int64_t outputs = 1;

  friend auto operator<=>(const Vertex&, const Vertex&) = default;
};

/// Formats a vertex as `AMP 16x16` (inputs x outputs) or `SLIC 4x2x2` (groups first).
std::string to_text(const Vertex& vertex);

/// The work of one tile in one serial step. Channels and groups are multiples of the vertex's blocks.
struct TilePart {
  std::int64_t groups = 1;
  std::int64_t batch = 1;
  std::int64_t rows = 1;     ///< Rows of the output.
  std::int64_t columns = 1;  ///< Columns of the output.
  std::int64_t inputs = 1;
  std::int64_t outputs = 1;
  std::int64_t kernel_rows = 1;
  std::int64_t kernel_columns = 1;

  [[nodiscard]] std::int64_t positions() const { return batch * rows * columns; }
};

/// Lists the vertices that can compute `product`, in a fixed order. HMAC can compute everything.
std::vector<Vertex> vertices_for(const Product& product, const Target& target, Arithmetic arithmetic);

/// Returns a tile's cycles for its part. They are monotonic in every number of the part.
Cycles vertex_cycles(const Vertex& vertex, const Product& product, const Target& target, const TilePart& part);

std::vector<Vertex> amp_vertices(const Product& product, const Target& target);
Cycles amp_cycles(const Vertex& vertex, const Product& product, const Target& target, const TilePart& part);

std::vector<Vertex> slic_vertices(const Product& product, Arithmetic arithmetic);
Cycles slic_cycles(const Vertex& vertex, const Target& target, const TilePart& part);

std::vector<Vertex> hmac_vertices(const Product& product, const Target& target);
Cycles hmac_cycles(const Vertex& vertex, const Product& product, const Target& target, const TilePart& part);

/// The busiest worker's run of positions, and the number of rows that it touches. Rows of `columns` positions each are
/// divided into one run per worker, as equal as possible.
struct WorkerRun {
  std::int64_t rows = 0;
  std::int64_t positions = 0;
};
WorkerRun worker_run(std::int64_t rows, std::int64_t columns, std::int64_t workers);

/// Returns the cycles to set a tile's partial sums to zero, once per step: 24 + their bytes / load rate.
Cycles zeroing_cycles(const Target& target, const TilePart& part);

}  // namespace poprun::planner
