#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <onnx/onnx_pb.h>

#include "replica/graph/graph.h"

namespace poprun::onnx_import {

/// A piece of a file's graph: its nodes from this one on, up to the next piece.
struct Piece {
  std::size_t node = 0;  ///< Index into GraphProto::node.
  std::string name;      ///< Unique; without blanks.
};

/// The operations that an import created for a file's nodes, in order.
struct ImportedOperations {
  const Graph& graph;
  std::span<const Operation> operations;
  std::span<const std::size_t> node;  ///< By operation, the node that it comes from; never falls.
  std::span<const TensorId> outputs;  ///< The file's.
};

/// The layers of an imported model: pieces between the narrowest places of its graph, each with at least one product (a
/// convolution, a matrix product ...) and what follows it.
///
///   conv  relu | conv  relu  conv  add  relu | pool  gemm        one tensor crosses at each |
///               '------------------^                             none at which two do
///
/// A place is as narrow as few activations cross it; those far smaller than the largest do not count, as masks do not.
/// It takes the narrowest places, and wider ones only while these leave fewer than four pieces. So a residual block is
/// one piece.
///
/// A piece is called by the folders that the names of its nodes share ("encoder/layer.0"), else by what its first
/// product writes. The first piece begins at node 0.
///
/// Deterministic. Cost: O(operations * tensors alive).
std::vector<Piece> narrowest_cuts(const ImportedOperations& imported, const ::onnx::GraphProto& file);

}  // namespace poprun::onnx_import
