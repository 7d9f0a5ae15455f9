#pragma once

#include <string>

#include "replica/ops/builder/builder.h"

namespace poprun {

/// Appends five iterations of Newton and Schulz, with Muon's coefficients (ops/optimizers/muon.cc), that bring the
/// singular values of u, f32[R,C] of norm at most 1, near 1. New tensors are called NAME.*. Returns a tensor of u's
/// type.
TensorId orthogonalised(Builder& builder, const std::string& name, TensorId u);

}  // namespace poprun
