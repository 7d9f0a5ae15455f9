#pragma once

#include <optional>
#include <string>

#include <onnx/onnx_pb.h>

#include "replica/graph/types.h"

/// A Softmax at the end of a model, which a cross-entropy loss brings itself.
namespace poprun::onnx_import {

struct LastSoftmax {
  const ::onnx::NodeProto* node = nullptr;

  /// The first node behind it that moves elements; null: its result is the first output.
  const ::onnx::NodeProto* behind = nullptr;
  bool reshaped = false;  ///< Something behind it changes the shape, and the order of no element.
};

/// The Softmax whose results are the graph's first output, as they are or moved; `node` is null if there is none.
LastSoftmax last_softmax(const ::onnx::GraphProto& graph);

/// Why the loss must be that of its results: it is not over the classes. Nothing if the loss of its input `x` is
/// that of the model. `joined`: the Softmax takes all dimensions from its axis on as one. `labels`: their shape, if
/// there are any.
std::optional<std::string> reason_to_keep(const LastSoftmax& last, const Shape& x, bool joined,
                                          const std::optional<Shape>& labels, const ::onnx::ValueInfoProto& output);

/// The dimension of the classes in logits: the last of [N,K] and [N,...,K], the second of [N,K,...] and [N,K,1,1].
std::size_t classes_axis(const Shape& logits, const Shape& labels);

/// True for logits [N,K,...] and labels [N,...], as PyTorch has the classes of pixels. Where the classes may as well be
/// last (logits [N,2,2,2]), they come second in images, and last in sequences [N,T,K].
bool classes_come_second(const Shape& logits, const Shape& labels);

/// Whether the classes of logits may come second or last, to judge by the labels.
bool classes_are_ambiguous(const Shape& logits, const Shape& labels);

/// Shape without the 1s after the first two dimensions: [N,K,1,1], as global pooling leaves it.
Shape without_pixels(Shape shape);

}  // namespace poprun::onnx_import
