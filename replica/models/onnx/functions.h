#pragma once

#include <onnx/onnx_pb.h>

#include "replica/base/error.h"

namespace poprun::onnx_import {

/// Largest number of nodes of a model after its functions have been expanded. Each call counts as a node, too.
inline constexpr int kMostNodes = 1 << 18;

/// Replaces each call of one of the model's own functions, in the graph and in branches, with the function's nodes, and
/// removes the functions. Functions may call others. Names in a call begin with the call's name: "block1/hidden".
///
///   y = Block<alpha=0.1>(x)            t'1 = Gemm(x, w')           names from a function's body get
///   Block(a) => (b) {           ->     y   = LeakyRelu<0.1>(t'1)   the call's name as a prefix
///     t = Gemm(a, w); b = LeakyRelu<alpha=@alpha>(t) }
///
/// Errors
///   kData   a function calls itself, or a call has more inputs or outputs than its function.
///   kUsage  more than kMostNodes nodes and calls, functions nested deeper than 64, an operator
///           that is not the same in the function's opset and the model's, or a function with
///           default attribute values or an overload, even if nothing calls it.
Status expand_functions(::onnx::ModelProto& model);

}  // namespace poprun::onnx_import
