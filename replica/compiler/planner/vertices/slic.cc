#include <array>

#include "replica/compiler/planner/vertices/vertex.h"

/// SLIC: grouped convolutions in half precision with very few channels in a group, by windows of
/// four kernel columns (ipu.md 2.3).
namespace poprun::planner {
namespace {

constexpr std::int64_t kWindow = 4;

/// Groups and channels of a block.
struct Block {
  std::int64_t groups;
  std::int64_t channels;
};
constexpr std::array<Block, 5> kBlocks = {{{1, 4}, {2, 2}, {4, 1}, {8, 1}, {16, 1}}};

}  // namespace

std::vector<Vertex> slic_vertices(const Product& product, Arithmetic arithmetic) {
  std::vector<Vertex> found;
  if (arithmetic == Arithmetic::kF32 || product.groups == 1 ||
      product.input_channels != product.output_channels || product.field[1].kernel == 1) {
    return found;
  }
  for (const FieldDimension& d : product.field) {
    if (d.stride > 2 || d.input_dilation > 1 || d.kernel_dilation > 1) {
      return found;
    }
  }
  for (const Block& block : kBlocks) {
    if (block.channels == product.input_channels && block.groups <= product.groups) {
      found.push_back({.kind = VertexKind::kSlic,
                       .groups = block.groups,
                       .inputs = block.channels,
                       .outputs = block.channels});
    }
  }
  return found;
}

/// The overheads are those of the AMP vertex nx1 [I]; the rate is 8 * min(vector width, channels)
/// multiply-accumulates in a cycle.
Cycles slic_cycles(const Vertex& v, const Target& target, const TilePart& part) {
  const std::int64_t blocks =
      (part.groups / v.groups) * (part.inputs / v.inputs) * (part.outputs / v.outputs);
  const std::int64_t macs = v.groups * v.inputs * v.outputs * kWindow;
  const std::int64_t rate = std::min(target.vector_width, v.inputs) * 8;
  const std::int64_t load = ceil_div(macs * target.element.count(), target.load_bytes_per_cycle);
  const std::int64_t windows = part.kernel_rows * ceil_div(part.kernel_columns, kWindow);
  const WorkerRun run = worker_run(part.batch * part.rows, part.columns, target.workers);
  const std::int64_t worker = 18 + run.rows * 28 + run.positions * ceil_div(macs, rate);
  return zeroing_cycles(target, part) +
         Cycles{109 + 54 + blocks * (14 + windows * (12 + load + target.workers * worker))};
}

}  // namespace poprun::planner
