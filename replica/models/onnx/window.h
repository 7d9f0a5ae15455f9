#pragma once

#include "replica/models/onnx/node.h"

/// What convolutions and poolings have in common: images, and windows that move over them.
namespace poprun::onnx_import {

/// Input 0 as an image, channels-last: [N,C,H,W], or a sequence [N,C,L] as [N,C,1,L].
/// Errors: kUsage, another rank.
Result<TensorId> image_of(Node& node);

/// Output 0 is this image; a sequence where input 0 is one.
Status set_image(Node& node, TensorId image);

/// Of images; for a sequence the row's entries stand still.
struct Window {
  Shape stride;
  Shape dilation;
  Shape pad;  ///< [top, left, bottom, right].
};

/// ONNX's attributes strides, dilations, pads and auto_pad for a kernel [R,S] on input 0.
Result<Window> window_of(Node& node, const Shape& kernel);

}  // namespace poprun::onnx_import
