#pragma once

#include "replica/models/onnx/node.h"

/// Checks of indices (input 1 of nodes that select elements of input 0), and what convolutions and poolings share:
/// images, and windows that move over them. Indices known at import are checked here, others when used (replica/ops).
/// Errors of the checks: kData if an index is out of range; names it, its place and the range.
namespace poprun::onnx_import {

/// Returns the node's axis after checking the known indices along it.
Result<std::size_t> indexed_axis(const Node& node);

/// Checks coordinates [...,q], which index the q dimensions after the first `batch_dims`.
Status check_coordinates(const Node& node, std::int64_t batch_dims);

/// Returns input 0 as a channels-last image: [N,C,H,W] or, for [N,C,L], [N,C,1,L]. Errors: kUsage for another rank.
Result<TensorId> image_of(Node& node);

/// Sets output 0 to this image, or to a sequence if input 0 is one.
Status set_image(Node& node, TensorId image);

/// A kernel and how it moves along the dimensions of input 0 after the channels.
struct Window {
  Shape kernel;
  Shape stride;
  Shape dilation;
  Shape pad;  ///< Before each dimension, then after each.
};

/// Reads strides, dilations, pads and auto_pad. Requires: the kernel has an entry per dimension after the channels.
Result<Window> window_of(Node& node, Shape kernel);

/// Returns the window on an image; the window of a sequence becomes one row high.
Window on_image(Window window);

}  // namespace poprun::onnx_import
