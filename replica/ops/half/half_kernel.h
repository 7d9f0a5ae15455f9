#pragma once

#include <memory>

#include "replica/ops/face/operator.h"

namespace poprun {

/// Returns a kernel for one use of `op`, in any precision. float16 inputs are widened to float32 in scratch, the
/// operator's float32 numerics run, and float16 outputs are rounded to nearest even on store. Attributes change this:
///
///   stochastic="NAME"   rounds at random, by a pure function of (job seed, NAME, output, step, micro-batch,
///                       element) that is the same on every replica, so that identical weights stay identical
///   shards=COUNT        each operand is one of COUNT shards; `element` is then the index in the full tensor
///   partials="half"     a sum of products (Operator::contraction) is split into at most kPartials equal pieces of at
///                       least kLeastPartial terms; their sums are rounded to float16 and then added in float32
///
/// Operators that update tensors in place also do so in float16. Requires: the operator accepts float32 in place of
/// float16. Cost: one pass over every float16 operand, and 4 bytes of scratch for each of its elements.
std::unique_ptr<Kernel> prepare_kernel(const Operator& op, const Signature& signature);

/// Returns whether a use reads Operands::moment, either in its own numerics or to round its results at random.
bool reads_moment(const Operator& op, const Attributes& attributes);

constexpr std::int64_t kPartials = 4;
constexpr std::int64_t kLeastPartial = 16;  ///< Input channels per block of a matrix unit.

}  // namespace poprun
