#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "replica/base/units.h"
#include "replica/device/device.h"
#include "replica/device/product.h"

/// The code that a tile computes its part of a product with. One kind per file.
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
  /// Columns of the matrix unit: output channels that it sums at once. Each takes 4 products of float16 or 1 of float32
  /// in a cycle [I]: Mk2 has 16, 8 if float16 is summed in float32.
  std::int64_t columns = 0;
  /// Input channels of a full block of weights: 16 of float16, 8 of float32. [D] poplibs.
  std::int64_t block_inputs = 0;
  /// Elements that the vector unit takes in a cycle.
  std::int64_t vector_width = 0;

  Bytes element;  ///< An input's or weight's.
  Bytes partial;  ///< A sum's.

  /// `permille` thousandths of a tile, rounded down.
  [[nodiscard]] Bytes share(std::int64_t permille) const { return Bytes{bytes_per_tile.count() * permille / 1000}; }
};

/// Requires: the device has at least one tile.
Target target_of(const Device& device, Arithmetic arithmetic);

enum class VertexKind : std::uint8_t {
  kAmp,   ///< Accumulating Matrix Product: blocks of weights in the matrix unit.
  kSlic,  ///< Four neighbouring kernel columns of a few channels of grouped convolutions.
  kHmac,  ///< Dot products along the input channels, on the vector unit.
};

/// A kind with the blocks that it computes in: every tile's channels are multiples of these.
struct Vertex {
  VertexKind kind = VertexKind::kAmp;
  std::int64_t groups = 1;
  std::int64_t inputs = 1;
  std::int64_t outputs = 1;

  friend auto operator<=>(const Vertex&, const Vertex&) = default;
};

/// `AMP 16x16`: inputs x outputs; `SLIC 4x2x2`: groups first.
std::string to_text(const Vertex& vertex);

/// The work of one tile in one serial step. Channels and groups are multiples of the vertex's.
struct TilePart {
  std::int64_t groups = 1;
  std::int64_t batch = 1;
  std::int64_t rows = 1;     ///< The output's.
  std::int64_t columns = 1;  ///< The output's.
  std::int64_t inputs = 1;
  std::int64_t outputs = 1;
  std::int64_t kernel_rows = 1;
  std::int64_t kernel_columns = 1;

  [[nodiscard]] std::int64_t positions() const { return batch * rows * columns; }
};

/// Vertices that can compute `product`, each kind's in a fixed order. HMAC can compute everything.
std::vector<Vertex> vertices_for(const Product& product, const Target& target, Arithmetic arithmetic);

/// Cycles of a tile for its part. Grows with every number of the part.
Cycles vertex_cycles(const Vertex& vertex, const Product& product, const Target& target, const TilePart& part);

std::vector<Vertex> amp_vertices(const Product& product, const Target& target);
Cycles amp_cycles(const Vertex& vertex, const Product& product, const Target& target, const TilePart& part);

std::vector<Vertex> slic_vertices(const Product& product, Arithmetic arithmetic);
Cycles slic_cycles(const Vertex& vertex, const Target& target, const TilePart& part);

std::vector<Vertex> hmac_vertices(const Product& product, const Target& target);
Cycles hmac_cycles(const Vertex& vertex, const Product& product, const Target& target, const TilePart& part);

/// The run of positions of the busiest worker, where rows of `columns` positions are dealt out in equal runs, and the
/// rows that it takes.
struct WorkerRun {
  std::int64_t rows = 0;
  std::int64_t positions = 0;
};
WorkerRun worker_run(std::int64_t rows, std::int64_t columns, std::int64_t workers);

/// Setting a tile's partial sums to zero, once per step: 24 + their bytes at the load rate.
Cycles zeroing_cycles(const Target& target, const TilePart& part);

}  // namespace poprun::planner
