#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "replica/models/layers/shapes.h"
#include "replica/models/onnx/node.h"

/// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear and MatMulInteger.
///
/// A job computes with reals, so a quantised tensor is a tensor of reals that are whole numbers in range (fake
/// quantisation). The gradient passes straight through the rounding, and is zero where a number was out of range, as in
/// PyTorch's fake_quantize: see round_through and clip in replica/ops. Scales and zero points are constants, unless
/// model.trained-constants names a scale; its gradient is then that of Esser et al., "Learned step size quantization",
/// 2020, without its factor.
namespace poprun::onnx_import::nodes::quantization {
namespace {

using Proto = ::onnx::TensorProto;

constexpr Element kUint4 = 21;  // Types that are newer than Debian's onnx.proto.
constexpr Element kInt4 = 22;

struct Range {
  double low;
  double high;
};

std::optional<Range> range_of(Element element) {
  switch (element) {
    case Proto::INT8:
      return Range{-128, 127};
    case Proto::UINT8:
      return Range{0, 255};
    case Proto::INT16:
      return Range{-32768, 32767};
    case Proto::UINT16:
      return Range{0, 65535};
    case kUint4:
      return Range{0, 15};
    case kInt4:
      return Range{-8, 7};
    default:
      return std::nullopt;
  }
}

/// How scales and zero points correspond to the elements of a tensor: to all, to the slices along an axis, or to blocks
/// along it, for which the axis is split in two.
struct Blocks {
  Shape x;      ///< Shape of the tensor while it is scaled.
  Shape scale;  ///< Shape of the scales and zero points, which broadcasts to it.
};

Result<Blocks> blocks_of(Node& node) {
  const Shape x = node.shape(0);
  const Shape scale = node.shape(1);
  const std::int64_t block = node.integer("block_size", 0);
  const auto is_single = [](const Shape& shape) { return shape.empty() || shape == Shape{1}; };
  if (node.has(2) && node.shape(2) != scale && !(is_single(node.shape(2)) && is_single(scale))) {
    return node.wrong("needs zero points of the same shape as the scales");
  }
  if (is_single(scale)) {
    return Blocks{x, {}};
  }
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(node.integer("axis", 1), x.size()));
  Blocks blocks{x, Shape(x.size(), 1)};
  if (block == 0) {
    blocks.scale[axis] = x[axis];
    if (scale != Shape{x[axis]}) {
      return node.wrong(fmt::format("needs one scale, or {} scales, one for each slice along axis {}", x[axis], axis));
    }
    return blocks;
  }
  Shape wanted = x;
  wanted[axis] = block > 0 ? x[axis] / block : 0;
  if (block < 0 || x[axis] % block != 0 || scale != wanted) {
    return node.unsupported("blocks that do not divide the axis, or another number of scales than of blocks");
  }
  const auto at = static_cast<std::ptrdiff_t>(axis);
  blocks.x[axis] = x[axis] / block;
  blocks.x.insert(blocks.x.begin() + at + 1, block);
  blocks.scale = scale;
  blocks.scale.insert(blocks.scale.begin() + at + 1, 1);
  return blocks;
}

/// Returns the scales, and the zero points as reals; nothing if the zero points are left out or all zero.
Result<TensorId> scales_of(Node& node, const Blocks& blocks) {
  node.keep_constant(1, "a scale of quantisation");
  POPRUN_ASSIGN(const TensorId scale, node.tensor(1));
  return node.reshape(scale, blocks.scale);
}
Result<std::optional<TensorId>> zero_points_of(Node& node, const Blocks& blocks) {
  if (!node.has(2)) {
    return std::nullopt;
  }
  if (const auto& known = node.value(2).constant; known != nullptr && !known->real()) {
    bool zero = true;
    for (std::int64_t i = 0; i < known->elements(); ++i) {
      zero = zero && known->integer_at(i) == 0;
    }
    if (zero) {
      return std::nullopt;
    }
  }
  POPRUN_ASSIGN(TensorId zero, node.reals_of(2));
  POPRUN_ASSIGN(zero, node.reshape(zero, blocks.scale));
  return zero;
}

/// Adds an operation whose result stays in float32 in half precision, in which large whole numbers would be inexact.
Result<TensorId> exact(Node& node, const std::string& kind, std::vector<TensorId> inputs, Attributes attributes = {}) {
  POPRUN_ASSIGN(const TensorId y, node.add(kind, std::move(inputs), std::move(attributes)));
  node.builder().keep_f32(y);
  return y;
}

/// Returns x / scale + zero, rounded and limited to the range.
Result<TensorId> quantised(Node& node, TensorId x, TensorId scale, std::optional<TensorId> zero, const Range& range) {
  POPRUN_ASSIGN(TensorId y, exact(node, "div", {x, scale}));
  POPRUN_ASSIGN(y, exact(node, "round_through", {y}));
  if (zero) {
    POPRUN_ASSIGN(y, exact(node, "add", {y, *zero}));
  }
  return exact(node, "clip", {y}, {{"min", range.low}, {"max", range.high}});
}

Status quantize(Node& node) {
  Element element = static_cast<Element>(node.integer("output_dtype", 0));
  element = node.has(2) ? node.element(2) : element == 0 ? Element{Proto::UINT8} : element;
  const auto range = range_of(element);
  if (!range) {
    return node.unsupported(fmt::format(
        "a result of type {}; available: int8, uint8, int16, uint16, and int4 and uint4 on the way to DequantizeLinear",
        element_name(element)));
  }
  POPRUN_ASSIGN(const Blocks blocks, blocks_of(node));
  POPRUN_ASSIGN(const TensorId scale, scales_of(node, blocks));
  POPRUN_ASSIGN(const auto zero, zero_points_of(node, blocks));
  const Shape shape = node.shape(0);
  POPRUN_ASSIGN(TensorId x, node.value(0).stored ? node.weight(0) : node.tensor(0));
  POPRUN_ASSIGN(x, node.row_major_of(x));
  if (node.type(x).data != DataType::kF32) {
    POPRUN_ASSIGN(x, node.to_reals(x));
  }
  POPRUN_ASSIGN(x, node.reshape(x, blocks.x));
  POPRUN_ASSIGN(TensorId y, quantised(node, x, scale, zero, *range));
  POPRUN_ASSIGN(y, node.reshape(y, shape));
  node.builder().keep_f32(y);
  node.set_quantised(0, y, element);
  return {};
}

/// Computes (x - zero) scale.
Status dequantize(Node& node) {
  if (is_real(node.element(0))) {
    return node.wrong("needs an input of integers");
  }
  POPRUN_ASSIGN(const Blocks blocks, blocks_of(node));
  POPRUN_ASSIGN(const TensorId scale, scales_of(node, blocks));
  POPRUN_ASSIGN(const auto zero, zero_points_of(node, blocks));
  const Shape shape = node.shape(0);
  POPRUN_ASSIGN(TensorId y, node.reals_of(0));
  POPRUN_ASSIGN(y, node.row_major_of(y));
  POPRUN_ASSIGN(y, node.reshape(y, blocks.x));
  if (zero) {
    POPRUN_ASSIGN(y, exact(node, "sub", {y, *zero}));
  }
  POPRUN_ASSIGN(y, node.add("mul", {y, scale}));
  const auto given = static_cast<Element>(node.integer("output_dtype", 0));
  return node.set_result(node.reshape(y, shape), given == 0 ? node.element(1) : given);
}

/// Quantises to uint8 with the scale and zero point that suit the elements of x, and 0.
Status dynamic_quantize(Node& node) {
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  Shape axes;
  for (std::size_t d = 0; d < node.shape(0).size(); ++d) {
    axes.push_back(static_cast<std::int64_t>(d));
  }
  POPRUN_ASSIGN(const TensorId nothing, node.fill({}, 0));
  const auto extreme = [&](layers::Reduction reduction, const char* kind) -> Result<TensorId> {
    const TensorId y = layers::reduce(node.builder(), node.free_name(), reduction, x, axes, false);
    POPRUN_TRY(node.builder().status());
    node.builder().keep_f32(y);
    return exact(node, kind, {y, nothing});
  };
  constexpr Range kRange{0, 255};
  POPRUN_ASSIGN(const TensorId high, extreme(layers::Reduction::kMax, "max"));
  POPRUN_ASSIGN(const TensorId low, extreme(layers::Reduction::kMin, "min"));
  POPRUN_ASSIGN(TensorId scale, exact(node, "sub", {high, low}));
  POPRUN_ASSIGN(const TensorId steps, node.fill({}, kRange.high));
  POPRUN_ASSIGN(scale, exact(node, "div", {scale, steps}));
  POPRUN_ASSIGN(const TensorId no_range, node.add("equal", {scale, nothing}));
  POPRUN_ASSIGN(const TensorId one, node.fill({}, 1));
  POPRUN_ASSIGN(scale, exact(node, "where", {no_range, one, scale}));
  POPRUN_ASSIGN(TensorId zero, exact(node, "sub", {nothing, low}));
  POPRUN_ASSIGN(zero, quantised(node, zero, scale, std::nullopt, kRange));
  POPRUN_ASSIGN(const TensorId y, quantised(node, x, scale, zero, kRange));
  node.set_quantised(0, y, Proto::UINT8);
  node.set(1, scale);
  node.set_quantised(2, zero, Proto::UINT8);
  return {};
}

/// Returns the factor i of a product, minus its zero points, if the node has any: one per row (column), or one for all.
Result<TensorId> centred(Node& node, std::size_t i, bool by_row) {
  POPRUN_ASSIGN(TensorId x, node.reals_of(i));
  POPRUN_ASSIGN(x, node.row_major_of(x));
  if (!node.has(i + 2)) {
    return x;
  }
  POPRUN_ASSIGN(TensorId zero, node.reals_of(i + 2));
  const Shape shape = node.type(zero).shape;
  if (shape.size() == 1 && shape[0] > 1 && by_row) {
    POPRUN_ASSIGN(zero, node.reshape(zero, {shape[0], 1}));
  }
  return exact(node, "sub", {x, zero});
}

Status matmul_integer(Node& node) {
  if (node.shape(0).size() < 2 || node.shape(1).size() < 2) {
    return node.unsupported("a vector as a factor");
  }
  POPRUN_ASSIGN(const TensorId a, centred(node, 0, /*by_row=*/true));
  POPRUN_ASSIGN(const TensorId b, centred(node, 1, /*by_row=*/false));
  POPRUN_ASSIGN(const TensorId y, node.matmul(a, b));
  node.builder().keep_f32(y);
  node.set_quantised(0, y, Proto::INT32);
  return {};
}

}  // namespace

std::vector<Translator> translators() {
  return {{"QuantizeLinear", 2, quantize},
          {"DequantizeLinear", 2, dequantize},
          {"DynamicQuantizeLinear", 1, dynamic_quantize},
          {"MatMulInteger", 2, matmul_integer}};
}

}  // namespace poprun::onnx_import::nodes::quantization
