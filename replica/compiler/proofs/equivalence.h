#pragma once

#include "replica/base/error.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Proves that a graph does what a plain one does, to the last bit, by value numbering over their traces: law 3.
///
/// Both are followed operation by operation, as the engine runs them: regions with their repeats, calls with their
/// micro-batch indices. Each value gets a number, made from the operation's kind, attributes and output types, the
/// numbers of its operands, and, if the operation reads the Moment, the run and the micro-batch. Copies and stashes
/// hand numbers on. Kernels are deterministic, so equal numbers are equal bits (two different values share one with a
/// probability of 2^-127).
///
/// Every function of `plain` that no other calls runs as the host would run it, one after the other, and all but "load"
/// a second time. After each, equal must be: what the host read, stream by stream, in its order and under its names;
/// and every parameter, buffer, constant and optimiser state, by name. `rewritten` may have more tensors and functions.
/// The values that a function finds in them must be those of one tensor of `plain`, the same both times: with a state
/// of their own, two runs would say nothing about a third.
///
/// Requires: `verify_operations` holds for both.
/// Errors: kBug: the first tensor that differs, and the deepest operation that reads something else than in the plain
/// job; or an operation that reads what nothing has written.
/// Cost: does not grow with the number of micro-batches (interpreter.h); about 50 ns an operation of the ramps and of
/// the rounds before the steady state repeats itself.
Status verify_equivalence(const Graph& plain, const Graph& rewritten);

}  // namespace poprun
