#pragma once

#include "replica/models/onnx/node.h"

/// Checks of indices, input 1 of the nodes that select elements of input 0. Indices that are known
/// at import are checked here; those that only the data tells, as they are used (replica/ops).
///
/// Errors of all: kData, an index is out of range: names it, its place and the range.
namespace poprun::onnx_import {

/// The node's axis, with all known indices along it in range.
Result<std::size_t> indexed_axis(const Node& node);

/// The same for coordinates [...,q], which index the q dimensions after the first `batch_dims`.
Status check_coordinates(const Node& node, std::int64_t batch_dims);

}  // namespace poprun::onnx_import
