#pragma once

#include "replica/base/error.h"
#include "replica/program/program.h"

namespace poprun {

/// Proves that a Program's memory plan keeps every value until its last reader has run. Runs the Program on a map from
/// bytes to the tensors that own them. Uses only steps, calls and addresses, not the results of liveness or placement.
///
///   - When a step writes a tensor, the tensor takes over its bytes; any other tensor that held one
///     of them is lost.
///   - A view (Operator::view) whose inputs and outputs alias as allowed writes nothing: from
///     then on, its inputs and outputs hold the bytes together.
///   - Otherwise an operator's output may share a byte with an input only if the operator may take
///     that input's bytes (Operator::in_place), and never with another output.
///   - A step that reads or updates a tensor must find it as it was written. In a stash, this
///     applies only to the entry that the step reads.
///   - A step poisons the bytes that it releases: any tensor that held one of them is lost.
///   - Between two functions that the host runs, only tensors that are always live survive.
///   - A step uses tensors only within their planned live ranges, and on IPUs of the replica. A
///     step that computes or reduces uses tensors of one IPU. On each IPU, the highest byte that any
///     step uses is at the planned peak.
///
/// Runs every function that the host runs, in the Program's order, then all except "load" again. A repeat ends as soon
/// as the map has not changed for as many consecutive rounds as the longest stash has entries, because every entry has
/// then been used.
///
/// Errors: kBug; the message names the step, the tensor, and what took over its bytes. Cost: about 100 ns per tensor
/// that a step uses in each round that is run, regardless of the repeat counts.
Status verify_memory(const Program& program);

}  // namespace poprun
