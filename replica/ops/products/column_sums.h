#pragma once

#include <cstdint>
#include <memory>

#include "replica/ops/face/operator.h"

namespace poprun {

/// The gradient of a bias together with that of the weights: a kernel that runs `product`, then sums its second input
/// dy, B rows of O floats, into its second output [O]. Input 0, output 0 and the scratch belong to the product.
///
/// Rows are added in float32 within blocks, and the blocks in double, in order: the error is about 1e-6 of the terms'
/// magnitudes for any number of rows, and the same on every CPU.
std::unique_ptr<Kernel> with_column_sums(std::unique_ptr<Kernel> product, std::int64_t B, std::int64_t O);

}  // namespace poprun
