#pragma once

#include "replica/models/onnx/node.h"

/// Checks of indices, and the common parts of convolutions and poolings: images, and windows that move over them.
/// Indices (input 1) select elements of input 0. Known indices are checked at import, the others when they are used
/// (replica/ops). Errors of the checks: kData for an index out of range; the message names it, its place and the range.
namespace poprun::onnx_import {

/// Returns the node's axis after checking the known indices along it.
Result<std::size_t> indexed_axis(const Node& node);

/// Checks coordinates [...,q], which index the q dimensions after the first `batch_dims`.
Status check_coordinates(const Node& node, std::int64_t batch_dims);

/// Returns input 0, [N,C,H,W] or [N,C,L], as a channels-last image; L becomes 1 x L. Errors: kUsage for other ranks.
Result<TensorId> image_of(Node& node);

/// Sets output 0 to this image, which becomes a sequence if input 0 is one.
Status set_image(Node& node, TensorId image);

/// A kernel, and how it moves along the dimensions of input 0 that follow the channels.
struct Window {
  Shape kernel;
  Shape stride;
  Shape dilation;
  Shape pad;  ///< The padding before each dimension, then the padding after each.
};

/// Reads strides, dilations, pads and auto_pad. Requires: the kernel has one entry per dimension after the channels.
Result<Window> window_of(Node& node, Shape kernel);

/// Returns the window as it moves over an image. The window of a sequence becomes one row high.
Window on_image(Window window);

}  // namespace poprun::onnx_import
