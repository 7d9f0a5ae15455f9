#pragma once

#include <cstdint>
#include <memory>

#include "replica/ops/face/operator.h"

namespace poprun {

/// Returns a kernel that computes the gradients of the weights and of the bias: it runs `product`, then sums its second
/// input dy, B rows of O floats, into its second output [O].
///
/// Rows are added in float32 within blocks, and the blocks in double, in order: the error is about 1e-6 of the terms'
/// magnitudes for any number of rows, and the result is the same on every CPU.
std::unique_ptr<Kernel> with_column_sums(std::unique_ptr<Kernel> product, std::int64_t B, std::int64_t O);

}  // namespace poprun
