#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replica/ops/builder/builder.h"

/// Convolution and pooling of sequences, f32[N,C,L] row-major. Each is its two-dimensional operator
/// on images [N,C,1,L], which the sequence becomes and ceases to be in one reordering of its bytes.
namespace poprun::layers {

/// What one dimension of a convolution or a pooling does.
struct SequenceWindow {
  std::int64_t stride = 1;
  std::int64_t pad_begin = 0;
  std::int64_t pad_end = 0;
  std::int64_t dilation = 1;  ///< Of convolutions: elements from one tap to the next.
  bool ceil = false;          ///< Of poolings: their output size is rounded up.
  bool count_pad = false;     ///< Of means: padding counts as zeros.
};

/// y [N,O,X] of x [N,C,L] and weights w [O,C/groups,K], as torch.nn.functional.conv1d. `bias`:
/// none, or one tensor [O].
TensorId conv1d(Builder& builder, const std::string& name, TensorId x, TensorId w,
                const std::vector<TensorId>& bias, const SequenceWindow& window,
                std::int64_t groups);

/// A convolution with parameters of its own.
struct SequenceConvolution {
  std::int64_t channels = 0;  ///< Of the output.
  std::int64_t kernel = 1;
  SequenceWindow window = {};
  std::int64_t groups = 1;
  bool bias = true;
};

/// torch.nn.Conv1d: parameters NAME.weight [O,C/groups,K] and NAME.bias [O], uniform in
/// +-1/sqrt(fan-in).
TensorId conv1d(Builder& builder, const std::string& name, TensorId x,
                const SequenceConvolution& c);

/// Largest, or mean, of `size` elements side by side.
TensorId maxpool1d(Builder& builder, const std::string& name, TensorId x, std::int64_t size,
                   const SequenceWindow& window);
TensorId avgpool1d(Builder& builder, const std::string& name, TensorId x, std::int64_t size,
                   const SequenceWindow& window);

}  // namespace poprun::layers
