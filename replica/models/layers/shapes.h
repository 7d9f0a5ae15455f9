#pragma once

#include <cstdint>
#include <string>

#include "replica/ops/builder/builder.h"

/// Rearrangements of elements, built from `reshape`, `transpose` and `expand`, and reductions over axes.
namespace poprun::layers {

/// Order of the parts that make up a channel's index: the pixel's row and column in its block, and the depth.
enum class DepthOrder : std::uint8_t {
  kBlockFirst,    ///< [block row, block column, depth]: ONNX's DCR, TensorFlow's order.
  kChannelFirst,  ///< [depth, block row, block column]: ONNX's CRD, PyTorch's PixelShuffle.
};

/// depth_to_space rearranges f32[N,C,H,W] into [N, C / block^2, H * block, W * block]; space_to_depth is its inverse
/// for kBlockFirst. Both keep x's layout.
TensorId depth_to_space(Builder& builder, const std::string& name, TensorId x, std::int64_t block, DepthOrder order);
TensorId space_to_depth(Builder& builder, const std::string& name, TensorId x, std::int64_t block);

/// Repeats x, row-major and of any element type, `repeats[d]` times along each dimension d. Differentiable for f32.
TensorId tile(Builder& builder, const std::string& name, TensorId x, const Shape& repeats);

enum class Reduction : std::uint8_t {
  kSum,
  kMean,
  kMax,
  kMin,
  kProd,
  kL1,         ///< sum |x|
  kL2,         ///< sqrt(sum x^2); the gradient exists only if the sum is not zero.
  kSumSquare,  ///< sum x^2
  kLogSum,     ///< ln(sum x)
  kLogSumExp,  ///< ln(sum exp(x)), computed relative to the largest x.
};

/// Reduces x, f32 in any layout, over `axes` (within its rank, in any order). With `keep_dims`, the result has x's rank
/// and layout and size 1 along the axes. Otherwise, the result is row-major without these dimensions.
TensorId reduce(Builder& builder, const std::string& name, Reduction reduction, TensorId x, const Shape& axes,
                bool keep_dims);

}  // namespace poprun::layers
