#pragma once

#include <memory>

#include "replica/ops/face/operator.h"

namespace poprun {

/// The numerics of one use of `op`, whatever the precision of its tensors.
///
/// float16 inputs are widened to float32 in scratch, the operator's float32 numerics run, and float16 outputs are
/// rounded on store: to nearest even, or according to the attributes
///
///   stochastic="NAME"   at random: a pure function of (job seed, NAME, output, step, micro-batch,
///                       element), the same on every replica, so that equal weights stay equal
///   shards=COUNT        the operands are the replica's shards of tensors, one of COUNT: elements
///                       count from the shard's first
///   partials="half"     a sum of products (Operator::contraction) is cut into kPartials equal
///                       pieces of at least kLeastPartial, each piece's sum is rounded to float16,
///                       and these are added in float32
///
/// Operators that update in place also do so here.
///
/// Requires: the operator takes float32 for every float16 tensor.
/// Cost: one pass over every float16 operand, and 4 bytes of scratch for each of its elements.
std::unique_ptr<Kernel> prepare_kernel(const Operator& op, const Signature& signature);

/// Whether the results of a use depend on Moment: its operator's do, or it rounds at random.
bool reads_moment(const Operator& op, const Attributes& attributes);

constexpr std::int64_t kPartials = 4;
constexpr std::int64_t kLeastPartial = 16;  ///< Input channels per block of a matrix unit.

}  // namespace poprun
