#include <algorithm>

#include "replica/compiler/planner/vertices/vertex.h"

/// Accumulating Matrix Product (ipu.md 2.6). Weights are loaded as blocks of input x output
/// channels; then the positions of the field stream through.
namespace poprun::planner {
namespace {

constexpr std::int64_t kMaxFilterHeight = 4;

/// Kernel rows that a block of weights takes at once: several with few input channels.
std::int64_t filter_height(const Vertex& v, const Target& target) {
  return target.block_inputs / v.inputs;
}

/// One position meets one block of weights.
std::int64_t position_cycles(const Vertex& v, const Target& target) {
  return ceil_div(target.block_inputs * v.outputs, target.macs_per_cycle);
}

std::int64_t load_cycles(const Vertex& v, const Target& target) {
  return ceil_div(target.block_inputs * v.outputs * target.element.count(),
                  target.load_bytes_per_cycle);
}

/// The 1x1 vertex: 38 + (n - 3) * 4 of a worker in half, 46 + (n - 3) * 8 in float.
std::int64_t pointwise(const Vertex& v, const Target& target, const TilePart& part) {
  const std::int64_t blocks = part.groups * (part.inputs / v.inputs) * (part.outputs / v.outputs);
  const std::int64_t n = std::max<std::int64_t>(ceil_div(part.positions(), target.workers), 3);
  const std::int64_t each = position_cycles(v, target);
  const std::int64_t overhead = target.element.count() == 4 ? 46 - 3 * 8 : 38 - 3 * 4;
  return 50 + blocks * (load_cycles(v, target) + target.workers * (overhead + n * each) + 25);
}

/// The nx1 vertex: kernel rows in blocks of the filter height, one column after the other.
std::int64_t spatial(const Vertex& v, const Product& product, const Target& target,
                     const TilePart& part) {
  const std::int64_t blocks = part.groups * (part.inputs / v.inputs) * (part.outputs / v.outputs);
  const std::int64_t height = filter_height(v, target);
  const std::int64_t kernel_outer = ceil_div(part.kernel_rows, height);
  const std::int64_t passes = ceil_div(v.outputs, target.columns);
  const std::int64_t load = load_cycles(v, target);
  const std::int64_t gather = height == 1 ? 15 : height == 2 ? 46 : 60;
  // Only every so many outputs meet an element of a dilated input.
  const WorkerRun run =
      worker_run(part.batch * ceil_div(part.rows, product.field[0].input_dilation),
                 ceil_div(part.columns, product.field[1].input_dilation), target.workers);
  const std::int64_t worker = 18 + run.rows * 28 + run.positions * position_cycles(v, target);
  const std::int64_t element = 12 + load + passes * (gather + 3) + target.workers * worker;
  return 109 + 54 + zeroing_cycles(target, part).count() +
         blocks * (14 + kernel_outer * (14 + part.kernel_columns * element));
}

/// Whether the 1x1 vertex can do it: the part has a single kernel element.
bool is_pointwise(const Vertex& v, const Product& product, const Target& target,
                  const TilePart& part) {
  return part.kernel_rows == 1 && part.kernel_columns == 1 && v.inputs == target.block_inputs &&
         product.field[0].input_dilation == 1 && product.field[1].input_dilation == 1;
}

}  // namespace

/// float32 sums in all columns, float16 in all or in eight. Without groups, a kernel of several
/// rows fills blocks with fewer input channels, as long as those hold all channels: grouped
/// convolutions pad theirs to a whole block, or they would be faster than seed 003's table 2.1
/// shows [I].
std::vector<Vertex> amp_vertices(const Product& product, const Target& target) {
  std::vector<std::int64_t> columns = {target.columns};
  if (target.element.count() == 2 && target.columns > 8) {
    columns.push_back(8);
  } else if (target.element.count() == 2) {
    columns.insert(columns.begin(), target.block_inputs);
  }
  std::vector<Vertex> found;
  for (std::int64_t rows = 1; rows <= kMaxFilterHeight; rows *= 2) {
    const std::int64_t inputs = target.block_inputs / rows;
    const bool fits = rows == 1 || (product.groups == 1 && product.input_channels <= inputs &&
                                    product.field[0].kernel > 1);
    for (const std::int64_t outputs : columns) {
      if (fits) {
        found.push_back({.kind = VertexKind::kAmp, .inputs = inputs, .outputs = outputs});
      }
    }
  }
  return found;
}

Cycles amp_cycles(const Vertex& vertex, const Product& product, const Target& target,
                  const TilePart& part) {
  return Cycles{is_pointwise(vertex, product, target, part)
                    ? pointwise(vertex, target, part)
                    : spatial(vertex, product, target, part)};
}

}  // namespace poprun::planner
