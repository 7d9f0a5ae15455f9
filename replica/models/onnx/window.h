#pragma once

#include "replica/models/onnx/node.h"

/// Checks of indices, input 1 of the nodes that select elements of input 0. Indices that are known at import are
/// checked here; those that only the data tells, as they are used (replica/ops).
///
/// Errors of all: kData, an index is out of range: names it, its place and the range.
/// The common part of convolutions and poolings: images, and windows that move over them.
namespace poprun::onnx_import {

/// The node's axis, with all known indices along it in range.
Result<std::size_t> indexed_axis(const Node& node);

/// The same for coordinates [...,q], which index the q dimensions after the first `batch_dims`.
Status check_coordinates(const Node& node, std::int64_t batch_dims);

/// Input 0 as an image, channels-last: [N,C,H,W], or a sequence [N,C,L] as [N,C,1,L].
/// Errors: kUsage, another rank.
Result<TensorId> image_of(Node& node);

/// Output 0 is this image; a sequence where input 0 is one.
Status set_image(Node& node, TensorId image);

/// How a kernel moves, along all of input 0's dimensions after the channels.
struct Window {
  Shape kernel;
  Shape stride;
  Shape dilation;
  Shape pad;  ///< Before each dimension, then after each.
};

/// ONNX's attributes strides, dilations, pads and auto_pad for a kernel on input 0. Requires one entry of the kernel
/// for each dimension.
Result<Window> window_of(Node& node, Shape kernel);

/// The same on an image: a sequence's is one row high.
Window on_image(Window window);

}  // namespace poprun::onnx_import
