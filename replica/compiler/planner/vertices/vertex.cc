#include "replica/compiler/planner/vertices/vertex.h"

#include <algorithm>

#include <fmt/format.h>

namespace poprun::planner {

std::string to_text(const Vertex& v) {
  switch (v.kind) {
    case VertexKind::kAmp:
      return fmt::format("AMP {}x{}", v.inputs, v.outputs);
    case VertexKind::kSlic:
      return fmt::format("SLIC {}x{}x{}", v.groups, v.inputs, v.outputs);
    case VertexKind::kHmac:
      return fmt::format("HMAC {}", v.inputs);
  }
  return "";
}

std::vector<Vertex> vertices_for(const Product& product, const Target& target,
                                 Arithmetic arithmetic) {
  std::vector<Vertex> found = amp_vertices(product, target);
  std::ranges::copy(slic_vertices(product, arithmetic), std::back_inserter(found));
  std::ranges::copy(hmac_vertices(product, target), std::back_inserter(found));
  return found;
}

Cycles vertex_cycles(const Vertex& vertex, const Product& product, const Target& target,
                     const TilePart& part) {
  switch (vertex.kind) {
    case VertexKind::kAmp:
      return amp_cycles(vertex, product, target, part);
    case VertexKind::kSlic:
      return slic_cycles(vertex, target, part);
    case VertexKind::kHmac:
      return hmac_cycles(vertex, product, target, part);
  }
  return {};
}

WorkerRun worker_run(std::int64_t rows, std::int64_t columns, std::int64_t workers) {
  const std::int64_t positions = ceil_div(rows * columns, workers);
  return {.rows = ceil_div(positions, columns), .positions = positions};
}

Cycles zeroing_cycles(const Target& target, const TilePart& part) {
  const std::int64_t sums = part.groups * part.positions() * part.outputs;
  return Cycles{24 + ceil_div(sums * target.partial.count(), target.load_bytes_per_cycle)};
}

}  // namespace poprun::planner
