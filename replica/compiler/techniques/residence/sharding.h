#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "replica/compiler/job/compile_options.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Keeps each of `variables` as one shard per replica of a group: `w.shard`, in which w resides. Functions access them
/// as follows.
///
///   - An operator that can work on shards (Operator::on_shards) and uses one of them works on
///     shards: updates and accumulations. Its other operands are cut, and those that reside
///     unsharded are gathered after it.
///   - An all_reduce of a gradient that such an operator reads becomes a reduce_scatter.
///   - Sums over the elements, for norms, are added over the shards before they are read.
///   - All other operations read the full tensor, gathered right before them.
///
/// A form of a tensor (shard or full) other than its residence is kept only while it is used again within a few
/// operations.
///
/// A phase, one of the regions `phases` of a function, gathers, once, the parameters that the functions it calls read:
/// in the region before it or, if the preceding phase runs on another IPU, before that phase. The region after it,
/// which may update them, cuts their shards from the full tensors.
///
/// `group`: number of replicas that share a tensor; 0 for all. `update`: the last region that uses gradients.
void shard_variables(Graph& graph, const std::set<TensorId>& variables, std::int64_t group, std::int64_t replicas,
                     const std::optional<Place>& update, const std::vector<Place>& phases = {});

}  // namespace poprun
