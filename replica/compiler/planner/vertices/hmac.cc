#include <algorithm>

#include "replica/compiler/planner/vertices/vertex.h"

/// HMAC: for each output a dot product along a run of input channels (ipu.md 2.6).
namespace poprun::planner {

/// Runs of up to 8 channels; all of a group; or long runs that cut the channels evenly [I].
std::vector<Vertex> hmac_vertices(const Product& product, const Target& /*target*/) {
  const auto run = [](std::int64_t inputs) {
    return Vertex{.kind = VertexKind::kHmac, .groups = 1, .inputs = inputs, .outputs = 1};
  };
  const std::int64_t channels = product.input_channels;
  if (product.groups > 1) {
    return {run(channels)};
  }
  std::vector<Vertex> found = {run(std::min<std::int64_t>(channels, 8))};
  for (const std::int64_t inputs : {32, 64, 128, 256}) {
    if (channels % inputs == 0) {
      found.push_back(run(inputs));
    }
  }
  return found;
}

/// A worker: 19 + positions * (7 + output channels * (3 + run / vector width)) for each run.
Cycles hmac_cycles(const Vertex& vertex, const Product& product, const Target& target,
                   const TilePart& part) {
  // Only every so many outputs meet an element of a dilated input.
  const std::int64_t rows = ceil_div(part.rows, product.field[0].input_dilation);
  const std::int64_t columns = ceil_div(part.columns, product.field[1].input_dilation);
  const std::int64_t positions = ceil_div(part.batch * rows * columns, target.workers);
  const std::int64_t runs =
      part.groups * part.kernel_rows * part.kernel_columns * (part.inputs / vertex.inputs);
  const std::int64_t dot = 3 + ceil_div(vertex.inputs, target.vector_width);
  const std::int64_t worker = 19 + positions * runs * (7 + part.outputs * dot);
  return zeroing_cycles(target, part) + Cycles{target.workers * worker};
}

}  // namespace poprun::planner
