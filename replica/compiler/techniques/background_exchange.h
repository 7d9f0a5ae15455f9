#pragma once

#include "replica/base/units.h"
#include "replica/graph/graph.h"

/// Exchange of gradients during the backward pass.
namespace poprun {

/// Reduces the gradients that `backward` makes during the backward pass, in buckets, instead of in `update`. Gradients
/// that become ready one after another form a bucket when they reach `bucket` bytes. They are reduced together, after
/// the last operation that uses one of them. The update first waits for all reductions:
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
