#pragma once

#include <cstdint>
#include <string>

#include "replica/ops/builder/builder.h"

/// Rearrangements of elements, made of `reshape`, `transpose` and `expand`.
namespace poprun::layers {

/// Which part of a channel's number is its pixel within a block.
enum class DepthOrder : std::uint8_t {
  kBlockFirst,    ///< [block row, block column, depth]: ONNX's DCR, TensorFlow's order.
  kChannelFirst,  ///< [depth, block row, block column]: ONNX's CRD, PyTorch's PixelShuffle.
};

/// f32[N,C,H,W] to [N, C / block^2, H * block, W * block], and back with the block first. In x's
/// layout.
TensorId depth_to_space(Builder& builder, const std::string& name, TensorId x, std::int64_t block,
                        DepthOrder order);
TensorId space_to_depth(Builder& builder, const std::string& name, TensorId x, std::int64_t block);

/// x repeated `repeats[d]` times along each dimension d; row-major, any element type.
/// Differentiable for f32.
TensorId tile(Builder& builder, const std::string& name, TensorId x, const Shape& repeats);

}  // namespace poprun::layers
