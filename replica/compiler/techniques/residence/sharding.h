#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "replica/compiler/job/compile_options.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Keeps each of `variables` as one shard per replica of a group: `w.shard`, in which w resides. In functions:
///
///   - An operator that can work on shards (Operator::on_shards) and uses a sharded variable works
///     on shards: updates and accumulations. Its other operands are cut, and those that reside
///     unsharded are gathered after the operation.
///   - An all_reduce of a gradient that such an operator reads becomes a reduce_scatter.
///   - Sums over the elements, for norms, are added over the shards before they are read.
///   - All other operations read the full tensor, gathered right before them.
///
/// A tensor stays in the other form (shard or full), too, only while that is used again within a few operations.
///
/// The parameters that the functions called by a phase (one of the regions `phases`) read are gathered once: in the
/// region before the phase or, if the preceding phase runs on another IPU, before that phase. The region after the
/// phase, which may update these parameters, cuts their shards from the full tensors. `group`: number of replicas that
/// share a tensor; 0 for all. `update`: the last region that uses gradients.
void shard_variables(Graph& graph, const std::set<TensorId>& variables, std::int64_t group, std::int64_t replicas,
                     const std::optional<Place>& update, const std::vector<Place>& phases = {});

}  // namespace poprun
