#pragma once

#include <memory>

#include "replica/ops/operator.h"

namespace poprun {

/// The numerics of one use of `op`, whatever its tensors are stored in.
///
/// float16 inputs are widened to float32 in scratch, the operator's float32 numerics run, and
/// float16 outputs are rounded when they are stored: to nearest even, or with the attribute
///
///   stochastic="NAME"   at random: a pure function of (job seed, NAME, output, step, micro-batch,
///                       element), the same on every replica, so that equal weights stay equal
///   partials="half"     of a sum of products (Operator::contraction) over n: it is cut into
///                       kPartials equal pieces of at least kLeastPartial, each piece's sum is
///                       rounded to float16, and the pieces are added in float32
///
/// Operators that update in place do so here too.
///
/// Requires: every float16 tensor stands where the operator takes float32.
/// Cost: one pass over every float16 operand, and 4 bytes of scratch for each of its elements.
std::unique_ptr<Kernel> prepare_kernel(const Operator& op, const Signature& signature);

constexpr std::int64_t kPartials = 4;
constexpr std::int64_t kLeastPartial = 16;  ///< Input channels of one matrix unit's block.

}  // namespace poprun
