#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "replica/compiler/job/compile_options.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Keeps each of `variables` as shards, one on each replica of a group: `w.shard`, in which w resides. Functions reach
/// them as follows.
///
///   - An operator that may work on shards (Operator::on_shards) and names one of them works on
///     shards: updates and accumulations. Its other operands are cut, and those that stay whole are
///     gathered after it.
///   - An all_reduce of a gradient that such an operator reads becomes a reduce_scatter.
///   - Sums over the elements, for norms, are added over the shards before they are read.
///   - Everything else reads the whole tensor, gathered right before it.
///
/// A form that is not the tensor's residence is kept as long as it is used again within few operations of the region.
///
/// A phase, which is one of the regions `phases` of a function, gathers the parameters that what it calls reads once,
/// in the region before it, or before the phase before it where that runs on another IPU. The region after it, which
/// may update them, cuts their shards from them.
///
/// `group`: replicas that have a tensor together. `update`: the region in which gradients and accumulators end.
void shard_variables(Graph& graph, const std::set<TensorId>& variables, std::int64_t group, std::int64_t replicas,
                     const std::optional<Place>& update, const std::vector<Place>& phases = {});

}  // namespace poprun
