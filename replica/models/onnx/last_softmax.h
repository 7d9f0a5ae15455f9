#pragma once

#include <optional>
#include <string>

#include <onnx/onnx_pb.h>

#include "replica/graph/types.h"

/// Finds a Softmax at the end of a model, which a cross-entropy loss already includes.
namespace poprun::onnx_import {

struct LastSoftmax {
  const ::onnx::NodeProto* node = nullptr;
  const ::onnx::NodeProto* behind = nullptr;  ///< The first node after it that moves or changes elements, or null.
  bool reshaped = false;                      ///< A node after it changes the shape but not the order of elements.
};

/// Finds the Softmax whose results, unchanged or moved, are the first output. `node` is null if there is none.
LastSoftmax last_softmax(const ::onnx::GraphProto& graph);

/// Returns why the Softmax must be kept, such as that it is not over the classes; nothing if the loss can take its
/// input `x` instead. `joined`: it takes its axis and all later dimensions as one. `labels`: their shape, if any.
std::optional<std::string> reason_to_keep(const LastSoftmax& last, const Shape& x, bool joined,
                                          const std::optional<Shape>& labels, const ::onnx::ValueInfoProto& output);

/// Returns the axis of the classes in logits: the last of [N,K] and [N,...,K], the second of [N,K,...] and [N,K,1,1].
std::size_t classes_axis(const Shape& logits, const Shape& labels);

/// Returns true for logits [N,K,...] and labels [N,...], PyTorch's order for pixels. If the classes could also be last
/// (logits [N,2,2,2]), they come second in images and last in sequences [N,T,K].
bool classes_come_second(const Shape& logits, const Shape& labels);

/// Returns whether, judging by the labels, the classes of the logits may come either second or last.
bool classes_are_ambiguous(const Shape& logits, const Shape& labels);

/// Removes trailing 1s after the first two dimensions, as in [N,K,1,1] after global pooling.
Shape without_pixels(Shape shape);

}  // namespace poprun::onnx_import
