#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/planner/target.h"
#include "replica/device/product.h"

/// The code that a tile computes its part of a product with. One kind per file.
namespace poprun::planner {

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

/// What one tile computes in one serial step. Channels and groups are multiples of the vertex's.
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
std::vector<Vertex> vertices_for(const Product& product, const Target& target,
                                 Arithmetic arithmetic);

/// Cycles of a tile for its part. Grows with every number of the part.
Cycles vertex_cycles(const Vertex& vertex, const Product& product, const Target& target,
                     const TilePart& part);

std::vector<Vertex> amp_vertices(const Product& product, const Target& target);
Cycles amp_cycles(const Vertex& vertex, const Product& product, const Target& target,
                  const TilePart& part);

std::vector<Vertex> slic_vertices(const Product& product, Arithmetic arithmetic);
Cycles slic_cycles(const Vertex& vertex, const Target& target, const TilePart& part);

std::vector<Vertex> hmac_vertices(const Product& product, const Target& target);
Cycles hmac_cycles(const Vertex& vertex, const Product& product, const Target& target,
                   const TilePart& part);

/// The run of positions of the busiest worker, where rows of `columns` positions are dealt out in
/// equal runs, and the rows that it takes.
struct WorkerRun {
  std::int64_t rows = 0;
  std::int64_t positions = 0;
};
WorkerRun worker_run(std::int64_t rows, std::int64_t columns, std::int64_t workers);

/// Setting a tile's partial sums to zero, once a step: 24 + their bytes at the load rate.
Cycles zeroing_cycles(const Target& target, const TilePart& part);

}  // namespace poprun::planner
