#pragma once

#include <cstdint>
#include <string>

#include "replica/ops/builder/builder.h"

/// Group normalisation (Wu and He, 2018): mean 0 and variance 1 over the elements of each group of
/// channels of each image, then every channel scaled and shifted. A group a channel is instance
/// normalisation, one group is layer normalisation of images.
namespace poprun::layers {

/// y, of x's type, of x f32[N,C,...] in any layout; w and b f32[C]. `groups` divides C.
TensorId group_norm(Builder& builder, const std::string& name, TensorId x, TensorId w, TensorId b,
                    std::int64_t groups, double epsilon);

/// torch.nn.GroupNorm by default: parameters NAME.weight (1) and NAME.bias (0), epsilon 1e-5.
TensorId group_norm(Builder& builder, const std::string& name, TensorId x, std::int64_t groups);

}  // namespace poprun::layers
