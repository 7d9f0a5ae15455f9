#pragma once

#include "replica/base/error.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Proves that a graph's results are bit-identical to a plain one's (law 3): translation validation by value numbers.
///
/// Follows both graphs operation by operation, as the engine runs them: regions with their repeats, calls with their
/// micro-batch indices. Each value gets a number, made from the operation's kind, attributes and output types, the
/// numbers of its operands, and, if the operation reads the Moment, the run and the micro-batch. Copies and stashes
/// pass numbers on. Kernels are deterministic, so equal numbers mean identical bits (values collide with a probability
/// of 2^-127).
///
/// Runs the functions of `plain` that no other function calls, in order, as the host would, and then all but "load" a
/// second time. After each, these must be the same in both graphs: what the host read, stream by stream, in order and
/// under the same names; and every parameter, buffer, constant and optimiser state, by name. `rewritten` may have more
/// tensors and functions. What a function finds in such a tensor must be the values of one tensor of `plain`, the same
/// both times: with state of its own, two runs would not prove a third.
///
/// Requires: `verify_operations` holds for both. Errors: kBug with the first tensor that differs and the deepest
/// operation that reads another value than in the plain job, or with an operation that reads an unwritten tensor. Cost:
/// about 50 ns per operation until the steady state repeats itself; independent of the number of micro-batches.
Status verify_equivalence(const Graph& plain, const Graph& rewritten);

}  // namespace poprun
