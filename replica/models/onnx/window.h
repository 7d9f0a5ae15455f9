#pragma once

#include "replica/models/onnx/node.h"

/// What convolutions and poolings have in common: images, and windows that move over them.
namespace poprun::onnx_import {

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

/// ONNX's attributes strides, dilations, pads and auto_pad for a kernel on input 0. Requires one
/// entry of the kernel for each dimension.
Result<Window> window_of(Node& node, Shape kernel);

/// The same on an image: a sequence's is one row high.
Window on_image(Window window);

}  // namespace poprun::onnx_import
