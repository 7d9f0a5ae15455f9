#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <onnx/onnx_pb.h>

#include "replica/graph/graph.h"

namespace poprun::onnx_import {

/// A piece of a file's graph: its nodes from `node` up to the beginning of the next piece.
struct Piece {
  std::size_t node = 0;  ///< Index into GraphProto::node.
  std::string name;      ///< Unique and without blanks.
};

/// The operations that an import created for a file's nodes, in order.
struct ImportedOperations {
  const Graph& graph;
  std::span<const Operation> operations;
  std::span<const std::size_t> node;  ///< For each operation, the index of its node. The indices never decrease.
  std::span<const TensorId> outputs;  ///< Outputs of the file's graph.
};

/// Returns the layers of an imported model. They are the pieces between the narrowest places of its graph. Each
/// contains at least one product (a convolution, a matrix product ...) and the operations that follow it.
///
///   conv  relu | conv  relu  conv  add  relu | pool  gemm        one tensor crosses at each |
///               '------------------^                             no | where two tensors cross
///
/// The width of a place is the number of activations that cross it, not counting those far smaller than the largest,
/// such as masks. Wider places are cut only if the narrowest give fewer than four pieces. A residual block is therefore
/// one piece.
///
/// A piece is named after the folders that its nodes' names share ("encoder/layer.0"), or else after the output of its
/// first product. The first piece begins at node 0. Deterministic. Cost: O(operations * live tensors).
std::vector<Piece> narrowest_cuts(const ImportedOperations& imported, const ::onnx::GraphProto& file);

}  // namespace poprun::onnx_import
