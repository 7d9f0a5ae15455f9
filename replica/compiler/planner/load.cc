#include "replica/compiler/planner/load.h"

#include <algorithm>

namespace poprun::planner {

Blocks blocks_of(const Product& viewed, const Vertex& vertex) {
  return {.groups = ceil_div(viewed.groups, vertex.groups),
          .inputs = ceil_div(viewed.input_channels, vertex.inputs),
          .outputs = ceil_div(viewed.output_channels, vertex.outputs)};
}

std::int64_t input_range(const FieldDimension& d, std::int64_t outputs, std::int64_t kernel) {
  const std::int64_t places = (outputs - 1) * d.stride + 1 + (kernel - 1) * d.kernel_dilation;
  return std::min(ceil_div(places, d.input_dilation), d.input);
}

Load load_of(const ViewedProduct& viewed, const Vertex& vertex, const Target& target,
             const Splits& s) {
  const Product& p = viewed.product;
  const Blocks blocks = blocks_of(p, vertex);
  Load load;
  TilePart& part = load.part;
  part.groups = ceil_div(blocks.groups, s.groups) * vertex.groups;
  part.inputs = ceil_div(blocks.inputs / s.serial_inputs, s.inputs) * vertex.inputs;
  part.outputs = ceil_div(blocks.outputs / s.serial_outputs, s.outputs) * vertex.outputs;
  part.batch = ceil_div(p.batch, s.batch);
  part.rows = ceil_div(p.field[0].output, s.rows);
  part.columns = ceil_div(p.field[1].output, s.columns);
  part.kernel_rows = ceil_div(p.field[0].kernel, s.kernel);
  part.kernel_columns = p.field[1].kernel;

  load.input_elements = input_range(p.field[0], part.rows, part.kernel_rows) *
                        input_range(p.field[1], part.columns, part.kernel_columns) * part.batch *
                        part.inputs * part.groups;
  load.weight_elements =
      part.kernel_rows * part.kernel_columns * part.inputs * part.outputs * part.groups;
  load.sums = part.positions() * part.outputs * part.groups;

  load.input_share = ceil_div(load.input_elements, s.outputs);
  load.input_received = load.input_elements - load.input_elements / s.outputs;
  load.weight_share = ceil_div(load.weight_elements, s.positions());
  load.weight_received = load.weight_elements - load.weight_elements / s.positions();
  load.shares_bus = s.outputs % target.tiles_per_exchange_bus == 0;
  load.reduction_depth = s.reduction_depth();
  load.serial_inputs = s.serial_inputs;
  load.serial_outputs = s.serial_outputs;
  const auto even_share = [&target](std::int64_t elements) {
    return Bytes{ceil_div(elements * target.element.count(), target.tiles)};
  };
  load.copied_input = even_share(viewed.copied_input);
  load.copied_weights = even_share(viewed.copied_weights);
  load.sliced_weights = s.serial() > 1 ? even_share(p.weight_elements()) : Bytes{0};
  return load;
}

}  // namespace poprun::planner
