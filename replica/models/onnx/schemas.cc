#include "replica/models/onnx/schemas.h"

#include <algorithm>
#include <exception>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <onnx/checker.h>

namespace poprun::onnx_import {
namespace {

using ::onnx::AttributeProto;
using ::onnx::OpSchema;

constexpr int kLibraryOpset = 17;
/// The newest IR version that libonnx's checker accepts. Later versions added element types and metadata, which the
/// importer itself refuses or ignores.
constexpr std::int64_t kLibraryIr = 8;

/// A definition that is newer than libonnx. Definitions that only allow more element types are left out.
struct Row {
  const char* name;
  int opset;
  int required;  ///< Inputs that must be given.
  int inputs;    ///< Most inputs; -1: any number.
  int outputs;   ///< Most outputs; -1: any number.
  /// `name:type`, with `!` if required. Types: i integer, I integers, f float, s string.
  const char* attributes;
};

// From ONNX's operator changelog (docs/Changelog.md of onnx 1.23).
constexpr Row kRows[] = {
    // clang-format off
    {"BitwiseAnd", 18, 2, 2, 1, ""},
    {"BitwiseNot", 18, 1, 1, 1, ""},
    {"BitwiseOr", 18, 2, 2, 1, ""},
    {"BitwiseXor", 18, 2, 2, 1, ""},
    {"CenterCropPad", 18, 2, 2, 1, "axes:I"},
    {"Col2Im", 18, 3, 3, 1, "dilations:I pads:I strides:I"},
    {"GroupNormalization", 18, 3, 3, 1, "epsilon:f num_groups:i!"},
    {"LpPool", 18, 1, 1, 1, "auto_pad:s ceil_mode:i dilations:I kernel_shape:I! p:i pads:I strides:I"},
    {"Mish", 18, 1, 1, 1, ""},
    {"OptionalGetElement", 18, 1, 1, 1, ""},
    {"OptionalHasElement", 18, 0, 1, 1, ""},
    {"Pad", 18, 2, 4, 1, "mode:s"},
    {"ReduceL1", 18, 1, 2, 1, "keepdims:i noop_with_empty_axes:i"},
    {"ReduceL2", 18, 1, 2, 1, "keepdims:i noop_with_empty_axes:i"},
    {"ReduceLogSum", 18, 1, 2, 1, "keepdims:i noop_with_empty_axes:i"},
    {"ReduceLogSumExp", 18, 1, 2, 1, "keepdims:i noop_with_empty_axes:i"},
    {"ReduceMax", 18, 1, 2, 1, "keepdims:i noop_with_empty_axes:i"},
    {"ReduceMean", 18, 1, 2, 1, "keepdims:i noop_with_empty_axes:i"},
    {"ReduceMin", 18, 1, 2, 1, "keepdims:i noop_with_empty_axes:i"},
    {"ReduceProd", 18, 1, 2, 1, "keepdims:i noop_with_empty_axes:i"},
    {"ReduceSumSquare", 18, 1, 2, 1, "keepdims:i noop_with_empty_axes:i"},
    {"Resize", 18, 1, 4, 1,
     "antialias:i axes:I coordinate_transformation_mode:s cubic_coeff_a:f exclude_outside:i extrapolation_value:f "
     "keep_aspect_ratio_policy:s mode:s nearest_mode:s"},
    {"ScatterElements", 18, 3, 3, 1, "axis:i reduction:s"},
    {"ScatterND", 18, 3, 3, 1, "reduction:s"},
    {"Split", 18, 1, 2, -1, "axis:i num_outputs:i"},
    {"AveragePool", 19, 1, 1, 1,
     "auto_pad:s ceil_mode:i count_include_pad:i dilations:I kernel_shape:I! pads:I strides:I"},
    {"Cast", 19, 1, 1, 1, "saturate:i to:i!"},
    {"CastLike", 19, 2, 2, 1, "saturate:i"},
    {"DeformConv", 19, 3, 5, 1, "dilations:I group:i kernel_shape:I offset_group:i pads:I strides:I"},
    {"QuantizeLinear", 19, 2, 3, 1, "axis:i saturate:i"},
    {"AffineGrid", 20, 2, 2, 1, "align_corners:i"},
    {"DFT", 20, 1, 3, 1, "inverse:i onesided:i"},
    {"Gelu", 20, 1, 1, 1, "approximate:s"},
    {"ImageDecoder", 20, 1, 1, 1, "pixel_format:s"},
    {"RegexFullMatch", 20, 1, 1, 1, "pattern:s"},
    {"StringConcat", 20, 2, 2, 1, ""},
    {"StringSplit", 20, 1, 1, 2, "delimiter:s maxsplit:i"},
    {"DequantizeLinear", 21, 2, 3, 1, "axis:i block_size:i"},
    {"GroupNormalization", 21, 3, 3, 1, "epsilon:f num_groups:i! stash_type:i"},
    {"QuantizeLinear", 21, 2, 3, 1, "axis:i block_size:i output_dtype:i saturate:i"},
    {"Attention", 23, 3, 6, 4,
     "is_causal:i kv_num_heads:i q_num_heads:i qk_matmul_output_mode:i scale:f softcap:f softmax_precision:i"},
    {"DequantizeLinear", 23, 2, 3, 1, "axis:i block_size:i output_dtype:i"},
    {"QuantizeLinear", 23, 2, 3, 1, "axis:i block_size:i output_dtype:i precision:i saturate:i"},
    {"RMSNormalization", 23, 2, 2, 1, "axis:i epsilon:f stash_type:i"},
    {"RotaryEmbedding", 23, 3, 4, 1, "interleaved:i num_heads:i rotary_embedding_dim:i"},
    {"Attention", 24, 3, 7, 4,
     "is_causal:i kv_num_heads:i q_num_heads:i qk_matmul_output_mode:i scale:f softcap:f softmax_precision:i"},
    {"Cast", 24, 1, 1, 1, "round_mode:s saturate:i to:i!"},
    {"CastLike", 24, 2, 2, 1, "round_mode:s saturate:i"},
    {"Swish", 24, 1, 1, 1, "alpha:f"},
    {"TensorScatter", 24, 2, 3, 1, "axis:i mode:s"},
    {"BitCast", 26, 1, 1, 1, "to:i!"},
    {"CumProd", 26, 2, 2, 1, "exclusive:i reverse:i"},
    {"SwiGLU", 28, 2, 2, 1, "alpha:f"},
    // clang-format on
};

AttributeProto::AttributeType type_of(char letter) {
  switch (letter) {
    case 'f':
      return AttributeProto::FLOAT;
    case 's':
      return AttributeProto::STRING;
    case 'I':
      return AttributeProto::INTS;
    default:
      return AttributeProto::INT;
  }
}

OpSchema schema_of(const Row& row) {
  OpSchema schema;
  schema.SetName(row.name).SetDomain(::onnx::ONNX_DOMAIN).SinceVersion(row.opset);
  const auto option = [](int k, int required, int most) {
    return most < 0 ? OpSchema::Variadic : k < required ? OpSchema::Single : OpSchema::Optional;
  };
  const auto types = OpSchema::all_tensor_types();
  for (int k = 0; k < std::max(row.inputs, 1); ++k) {
    schema.TypeConstraint("T" + std::to_string(k), types, "");
    schema.Input(k, "input" + std::to_string(k), "", "T" + std::to_string(k), option(k, row.required, row.inputs));
  }
  for (int k = 0; k < std::max(row.outputs, 1); ++k) {
    schema.TypeConstraint("U" + std::to_string(k), types, "");
    schema.Output(k, "output" + std::to_string(k), "", "U" + std::to_string(k), option(k, 1, row.outputs));
  }
  std::istringstream attributes(row.attributes);
  for (std::string attribute; attributes >> attribute;) {
    const std::size_t colon = attribute.find(':');
    schema.Attr(attribute.substr(0, colon), "", type_of(attribute[colon + 1]), attribute.back() == '!');
  }
  schema.Finalize();
  return schema;
}

/// The rows by name and opset.
const std::map<std::pair<std::string, int>, OpSchema>& newer() {
  static const auto all = [] {
    std::map<std::pair<std::string, int>, OpSchema> map;
    for (const Row& row : kRows) {
      map.emplace(std::pair{row.name, row.opset}, schema_of(row));
    }
    return map;
  }();
  return all;
}

}  // namespace

const OpSchema* Schemas::GetSchema(const std::string& name, int opset, const std::string& domain) const {
  if (domain == "ai.onnx") {
    return GetSchema(name, opset, ::onnx::ONNX_DOMAIN);
  }
  if (domain == ::onnx::ONNX_DOMAIN) {
    auto next = newer().upper_bound({name, opset});
    if (next != newer().begin() && std::prev(next)->first.first == name) {
      return &std::prev(next)->second;
    }
  }
  return ::onnx::OpSchemaRegistry::Schema(name, std::min(opset, kLibraryOpset), domain);
}

const Schemas& schemas() {
  static const Schemas all;
  return all;
}

Status check_graph(const ::onnx::ModelProto& model, std::int64_t opset) {
  if (model.ir_version() < 1) {
    return fail(ErrorCode::kData, fmt::format("its ir_version is {}, but must be at least 1", model.ir_version()));
  }
  ::onnx::checker::CheckerContext context;
  context.set_ir_version(static_cast<int>(std::min(model.ir_version(), kLibraryIr)));
  context.set_opset_imports({{::onnx::ONNX_DOMAIN, static_cast<int>(opset)}, {"ai.onnx", static_cast<int>(opset)}});
  context.set_schema_registry(&schemas());
  try {
    ::onnx::checker::check_graph(model.graph(), context, ::onnx::checker::LexicalScopeContext{});
  } catch (const std::exception& e) {
    const std::string text = e.what();
    return fail(ErrorCode::kData, fmt::format("refused by the ONNX checker: {}", text.substr(0, text.find('\n'))));
  }
  return {};
}

}  // namespace poprun::onnx_import
