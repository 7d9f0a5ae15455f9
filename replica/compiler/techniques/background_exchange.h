#pragma once

#include "replica/base/units.h"
#include "replica/graph/graph.h"

/// Exchange of gradients during the backward pass.
namespace poprun {

/// Reduces the gradients of `backward` in buckets during the backward pass, instead of all together in `update`.
/// Gradients join a bucket in the order in which they become ready, until it holds `bucket` bytes. A bucket is reduced
/// after the last operation that uses one of its gradients. The update first waits for all reductions:
///
///   all_reduce(a, b, m)    becomes    .. b ready .. all_reduce(b) background=1
///                                     .. a ready .. all_reduce(a) background=1
///                                     await_all_reduces(b, a)
///                                     all_reduce(m)
///
/// No sum changes, because a bucket's elements are reduced as before. Requires: bucket > 0; the first all_reduce in
/// `update` reduces the gradients, and `backward` does not repeat.
void exchange_in_background(Graph& graph, Place backward, Place update, Bytes bucket);

}  // namespace poprun
