#include "replica/compiler/planner/vertex.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "replica/base/error.h"
#include "replica/device/product.h"

/// Cycles of the vertices, after poplibs, lib/poplin/ConvPlan.cpp. AMP (Accumulating Matrix Product) loads weights as
/// blocks of input x output channels, and then streams the positions of the field through them. For each output, HMAC
/// computes a dot product along a run of input channels. SLIC computes grouped convolutions in half precision with very
/// few channels per group, in windows of four kernel columns.
namespace poprun::planner {
namespace {

constexpr std::int64_t kMaxFilterHeight = 4;

/// Returns how many kernel rows a block of weights covers: several if the block has few input channels.
std::int64_t filter_height(const Vertex& v, const Target& target) {
  return target.block_inputs / v.inputs;
}

/// Returns the cycles that one position takes to pass through one block of weights.
std::int64_t position_cycles(const Vertex& v, const Target& target) {
  return ceil_div(target.block_inputs * v.outputs, target.macs_per_cycle);
}

std::int64_t load_cycles(const Vertex& v, const Target& target) {
  return ceil_div(target.block_inputs * v.outputs * target.element.count(), target.load_bytes_per_cycle);
}

/// Returns the 1x1 vertex's cycles: a worker takes 38 + (n - 3) * 4 for n positions in half, 46 + (n - 3) * 8 in float.
std::int64_t pointwise(const Vertex& v, const Target& target, const TilePart& part) {
  const std::int64_t blocks = part.groups * (part.inputs / v.inputs) * (part.outputs / v.outputs);
  const std::int64_t n = std::max<std::int64_t>(ceil_div(part.positions(), target.workers), 3);
  const std::int64_t each = position_cycles(v, target);
  const std::int64_t overhead = target.element.count() == 4 ? 46 - 3 * 8 : 38 - 3 * 4;
  return 50 + blocks * (load_cycles(v, target) + target.workers * (overhead + n * each) + 25);
}

/// Returns the cycles of the nx1 vertex, which processes kernel rows in blocks of the filter height, column by column.
std::int64_t spatial(const Vertex& v, const Product& product, const Target& target, const TilePart& part) {
  const std::int64_t blocks = part.groups * (part.inputs / v.inputs) * (part.outputs / v.outputs);
  const std::int64_t height = filter_height(v, target);
  const std::int64_t kernel_outer = ceil_div(part.kernel_rows, height);
  const std::int64_t passes = ceil_div(v.outputs, target.columns);
  const std::int64_t load = load_cycles(v, target);
  const std::int64_t gather = height == 1 ? 15 : height == 2 ? 46 : 60;
  // Only one in every `input_dilation` outputs meets an element of a dilated input.
  const WorkerRun run = worker_run(part.batch * ceil_div(part.rows, product.field[0].input_dilation),
                                   ceil_div(part.columns, product.field[1].input_dilation), target.workers);
  const std::int64_t worker = 18 + run.rows * 28 + run.positions * position_cycles(v, target);
  const std::int64_t element = 12 + load + passes * (gather + 3) + target.workers * worker;
  return 109 + 54 + zeroing_cycles(target, part).count() +
         blocks * (14 + kernel_outer * (14 + part.kernel_columns * element));
}

/// Returns whether the 1x1 vertex can compute the part: one kernel element, full input blocks, no input dilation.
bool has_pointwise_part(const Vertex& v, const Product& product, const Target& target, const TilePart& part) {
  return part.kernel_rows == 1 && part.kernel_columns == 1 && v.inputs == target.block_inputs &&
         product.field[0].input_dilation == 1 && product.field[1].input_dilation == 1;
}

constexpr std::int64_t kWindow = 4;

/// Groups and channels of a SLIC block.
struct Block {
  std::int64_t groups;
  std::int64_t channels;
};
constexpr std::array<Block, 5> kBlocks = {{{1, 4}, {2, 2}, {4, 1}, {8, 1}, {16, 1}}};

}  // namespace

Target target_of(const Device& device, Arithmetic arithmetic) {
  POPRUN_CHECK(device.tiles > 0);
  Target target;
  target.tiles = device.tiles;
  target.bytes_per_tile = device.bytes_per_tile;
  target.exchange_bytes_per_cycle = device.exchange_bytes_per_cycle;
  target.load_bytes_per_cycle = device.load_bytes_per_cycle;
  target.element = element_bytes(arithmetic);
  target.partial = partial_bytes(arithmetic);
  switch (arithmetic) {
    case Arithmetic::kF32:
      target.macs_per_cycle = device.macs_per_cycle_f32;
      break;
    case Arithmetic::kF16:
      target.macs_per_cycle = device.macs_per_cycle_f16;
      break;
    case Arithmetic::kF16PartialsF16:
      target.macs_per_cycle = device.macs_per_cycle_f16_f16;
      break;
  }
  const bool f32 = arithmetic == Arithmetic::kF32;
  target.columns = f32 ? target.macs_per_cycle : target.macs_per_cycle / 4;
  target.block_inputs = f32 ? 8 : 16;
  target.vector_width = f32 ? device.vector_f32_per_cycle : device.vector_f16_per_cycle;
  return target;
}

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

std::vector<Vertex> vertices_for(const Product& product, const Target& target, Arithmetic arithmetic) {
  std::vector<Vertex> found = amp_vertices(product, target);
  std::ranges::copy(slic_vertices(product, arithmetic), std::back_inserter(found));
  std::ranges::copy(hmac_vertices(product, target), std::back_inserter(found));
  return found;
}

Cycles vertex_cycles(const Vertex& vertex, const Product& product, const Target& target, const TilePart& part) {
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

/// Lists the AMP vertices. A block has one output channel per column in float32, 16 or 8 in float16. Without groups, it
/// can hold several kernel rows of fewer input channels, if the product has no more channels than that. Grouped
/// convolutions pad their channels to a full block; otherwise they would be faster than in Graphcore's table 2.1 [I].
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
    const bool fits =
        rows == 1 || (product.groups == 1 && product.input_channels <= inputs && product.field[0].kernel > 1);
    for (const std::int64_t outputs : columns) {
      if (fits) {
        found.push_back({.kind = VertexKind::kAmp, .inputs = inputs, .outputs = outputs});
      }
    }
  }
  return found;
}

Cycles amp_cycles(const Vertex& vertex, const Product& product, const Target& target, const TilePart& part) {
  return Cycles{has_pointwise_part(vertex, product, target, part) ? pointwise(vertex, target, part)
                                                                  : spatial(vertex, product, target, part)};
}

/// Lists the HMAC vertices: one with a run of up to 8 channels, and those whose runs of 32 to 256 channels divide the
/// channels evenly. With groups, there is only one vertex, whose run consists of all channels [I].
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

/// Returns HMAC's cycles: a worker takes 19 + positions * runs * (7 + output channels * (3 + run / vector width)).
Cycles hmac_cycles(const Vertex& vertex, const Product& product, const Target& target, const TilePart& part) {
  // Only one in every `input_dilation` outputs meets an element of a dilated input.
  const std::int64_t rows = ceil_div(part.rows, product.field[0].input_dilation);
  const std::int64_t columns = ceil_div(part.columns, product.field[1].input_dilation);
  const std::int64_t positions = ceil_div(part.batch * rows * columns, target.workers);
  const std::int64_t runs = part.groups * part.kernel_rows * part.kernel_columns * (part.inputs / vertex.inputs);
  const std::int64_t dot = 3 + ceil_div(vertex.inputs, target.vector_width);
  const std::int64_t worker = 19 + positions * runs * (7 + part.outputs * dot);
  return zeroing_cycles(target, part) + Cycles{target.workers * worker};
}

std::vector<Vertex> slic_vertices(const Product& product, Arithmetic arithmetic) {
  std::vector<Vertex> found;
  if (arithmetic == Arithmetic::kF32 || product.groups == 1 || product.input_channels != product.output_channels ||
      product.field[1].kernel == 1) {
    return found;
  }
  for (const FieldDimension& d : product.field) {
    if (d.stride > 2 || d.input_dilation > 1 || d.kernel_dilation > 1) {
      return found;
    }
  }
  for (const Block& block : kBlocks) {
    if (block.channels == product.input_channels && block.groups <= product.groups) {
      found.push_back(
          {.kind = VertexKind::kSlic, .groups = block.groups, .inputs = block.channels, .outputs = block.channels});
    }
  }
  return found;
}

/// Returns SLIC's cycles: the nx1 AMP vertex's overheads [I], and 8 * min(vector width, channels) products per cycle.
Cycles slic_cycles(const Vertex& v, const Target& target, const TilePart& part) {
  const std::int64_t blocks = (part.groups / v.groups) * (part.inputs / v.inputs) * (part.outputs / v.outputs);
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
