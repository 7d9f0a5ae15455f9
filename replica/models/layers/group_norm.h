#pragma once

#include <cstdint>
#include <string>

#include "replica/ops/builder/builder.h"

/// Group normalisation (Wu and He, 2018): brings each group of channels of each image to mean 0 and
/// variance 1, then scales and shifts every channel. With one group per channel it is instance
/// normalisation, with a single group layer normalisation of images.
namespace poprun::layers {

/// y, of x's type; x is f32[N,C,...] in any layout, w and b are f32[C]. `groups` divides C.
TensorId group_norm(Builder& builder, const std::string& name, TensorId x, TensorId w, TensorId b,
                    std::int64_t groups, double epsilon);

/// torch.nn.GroupNorm with its defaults: parameters NAME.weight (1) and NAME.bias (0), epsilon
/// 1e-5.
TensorId group_norm(Builder& builder, const std::string& name, TensorId x, std::int64_t groups);

}  // namespace poprun::layers
