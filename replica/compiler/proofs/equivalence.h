#pragma once

#include "replica/base/error.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Proves that a graph's results are bit-identical to a plain graph's (law 3), by translation validation with value
/// numbers.
///
/// Follows both graphs operation by operation, as the engine runs them, including the repeats of regions and the
/// micro-batch indices of calls. Each value gets a number, derived from the operation's kind, attributes and output
/// types, the numbers of its operands, and, if the operation reads the Moment, the run and the micro-batch. Copies and
/// stashes pass numbers on. Kernels are deterministic, so equal numbers mean identical bits (two different values get
/// the same number with a probability of 2^-127).
///
/// Runs the functions of `plain` that no other function calls, in order, as the host would, and then runs all of them
/// except "load" a second time. After each run, both graphs must agree on what the host read from each stream, in order
/// and under the same names, and on every parameter, buffer, constant and optimiser state of the same name. `rewritten`
/// may have more tensors and functions. The values that a function finds in such a tensor must be those of one tensor
/// of `plain`, the same tensor in both runs: with additional state, two runs would prove nothing about a third.
///
/// Requires: `verify_operations` holds for both graphs. Errors: kBug if a tensor differs or an operation reads an
/// unwritten tensor. The message names that operation, or the first such tensor and the first upstream operation that
/// computes, from values of the plain job, a value unknown to that job. Cost: about 50 ns per operation until rounds
/// begin to repeat, regardless of the number of micro-batches.
Status verify_equivalence(const Graph& plain, const Graph& rewritten);

}  // namespace poprun
