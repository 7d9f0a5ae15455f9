#pragma once

#include "replica/base/error.h"
#include "replica/graph/graph.h"
#include "replica/program/program.h"

namespace poprun {

/// Checks that a Program has the structure of the graph from which it was lowered: the same functions, each with one
/// step per operation, repeated as often as the operation's region; and the same tensors, with the same sizes. Shares
/// no code with lower.cc. Cost: one pass over graph and Program. Errors: kBug; the message names the function or
/// tensor and both values.
Status verify_lowering(const Graph& graph, const Program& program);

}  // namespace poprun
