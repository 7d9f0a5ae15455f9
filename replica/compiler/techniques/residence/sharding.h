#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "replica/compiler/job/compile_options.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Divides each of `variables` into one shard per replica of a group; w then resides in `w.shard`. As a result:
///
///   - An operator, such as an update or accumulation, that can work on shards (Operator::on_shards)
///     and uses a sharded variable works on shards. Its other operands are cut, and those that
///     reside unsharded are gathered after the operation.
///   - An all_reduce of a gradient that such an operator reads becomes a reduce_scatter.
///   - Sums over elements, such as those in norms, are added up over the shards before they are read.
///   - All other operations read the full tensor, gathered right before them.
///
/// A tensor also stays in its other form (shard or full), but only if that form is used again within a few operations.
///
/// The parameters that a phase (one of the regions `phases`) reads through the functions that it calls are gathered
/// once: in the region before the phase or, if the preceding phase runs on another IPU, before that phase. The region
/// after the phase, which may update these parameters, cuts their shards from the full tensors. `group`: the number of
/// replicas that share a tensor, or 0 for all. `update`: the last region that uses gradients.
void shard_variables(Graph& graph, const std::set<TensorId>& variables, std::int64_t group, std::int64_t replicas,
                     const std::optional<Place>& update, const std::vector<Place>& phases = {});

}  // namespace poprun
