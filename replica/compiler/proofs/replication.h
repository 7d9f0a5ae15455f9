#pragma once

#include "replica/base/error.h"
#include "replica/program/program.h"

namespace poprun {

/// Proves that replicas on one host may share what the Program marks as common or divisible. Runs the Program for two
/// replicas of different groups in step, on values that are hashes of how they were computed: two values have the same
/// hash only if the same operations computed them from the same sources. Sources that differ between replicas (batches,
/// random numbers, parts of exchanges) are hashed with the replica's number. Shares no code with the analysis that sets
/// the marks.
///
///   - Whenever a step writes a common tensor, both replicas have the same value.
///   - Only initialisers, streams from the host, divisible steps and owners write common tensors. No other step writes
///     bytes of their images, and a view of these bytes is common.
///   - A divisible step works elementwise on operands that are equal, and writes only common tensors, in place.
///   - A step that gives results an owner reads equal operands, gives all its results the same owner, and is computed
///     alike by every replica. Only such steps, initialisers and streams write a tensor with an owner. If the tensor is
///     not common, it is not always live, and only the steps of its owner read it.
///   - After an all-reduce of divisible tensors, until they are rewritten, only divisible steps read them, elementwise,
///     or those of the owner for whom they are reduced.
///   - When a step has completed a tensor, the next step to name it is such an all-reduce, in the same function.
///
/// Runs every function that the host runs, in the Program's order, then all except "load" again; each repeat runs at
/// most twice. Errors: kBug; the message names the step and the tensor. Cost: about 200 ns per tensor that a step
/// names.
Status verify_replication(const Program& program);

}  // namespace poprun
