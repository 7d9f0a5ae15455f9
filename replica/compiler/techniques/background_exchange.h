#pragma once

#include "replica/base/units.h"
#include "replica/graph/graph.h"

/// When gradients travel.
namespace poprun {

/// Lets the gradients that `backward` makes and `update` reduces travel in buckets while backward goes on: gradients
/// that become ready one after another are reduced together once they are `bucket` bytes or more, after the last
/// operation that uses one of them. The rest of the
/// exchange waits for all of them:
///
///   all_reduce(a, b, m)    becomes    .. b ready .. all_reduce(b) background=1
///                                     .. a ready .. all_reduce(a) background=1
///                                     await_all_reduces(b, a)
///                                     all_reduce(m)
///
/// Changes no sum: a bucket's elements are reduced as they were before.
///
/// Requires: bucket > 0; the first all_reduce in `update` is that of the gradients, and `backward` does not repeat.
void exchange_in_background(Graph& graph, Place backward, Place update, Bytes bucket);

}  // namespace poprun
