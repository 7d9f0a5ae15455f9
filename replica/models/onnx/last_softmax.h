#pragma once

#include <optional>
#include <string>

#include <onnx/onnx_pb.h>

#include "replica/graph/types.h"

/// Finds a Softmax at the end of a model, which a cross-entropy loss already includes.
namespace poprun::onnx_import {

struct LastSoftmax {
  const ::onnx::NodeProto* node = nullptr;
  const ::onnx::NodeProto* behind = nullptr;  ///< The first node after `node` that moves or changes elements, or null.
  bool reshaped = false;                      ///< Whether a later node changes the shape but not the order of elements.
};

/// Finds the Softmax that feeds the first output directly or through nodes such as Cast; `node` is null if none does.
LastSoftmax last_softmax(const ::onnx::GraphProto& graph);

/// Returns why the Softmax must be kept, for example because it is not over the classes. Returns nothing if the loss
/// can take the Softmax's input, of shape `x`, instead. `joined` is true if the Softmax treats its axis and all later
/// dimensions as one; `labels` is the shape of the labels, if any.
std::optional<std::string> reason_to_keep(const LastSoftmax& last, const Shape& x, bool joined,
                                          const std::optional<Shape>& labels, const ::onnx::ValueInfoProto& output);

/// Returns the axis of the classes in logits: the last for [N,K] and [N,...,K], the second for [N,K,...] and [N,K,1,1].
std::size_t classes_axis(const Shape& logits, const Shape& labels);

/// Returns true for logits [N,K,...] and labels [N,...], which is PyTorch's order for pixels. If the classes could also
/// be last, as in logits [N,2,2,2], they are taken to be second in images and last in sequences [N,T,K].
bool classes_come_second(const Shape& logits, const Shape& labels);

/// Returns whether, judging by the labels, the classes of the logits could be either second or last.
bool classes_are_ambiguous(const Shape& logits, const Shape& labels);

/// Removes trailing 1s after the first two dimensions, as in [N,K,1,1] after global pooling.
Shape without_pixels(Shape shape);

}  // namespace poprun::onnx_import
