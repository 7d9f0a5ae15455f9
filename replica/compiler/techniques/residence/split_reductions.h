#pragma once

#include <set>

#include "replica/graph/graph.h"

namespace poprun {

/// Splits a region's all-reduces and reduce-scatters of several off-chip accumulators. Each accumulator is reduced
/// separately, right before its result is first read, so that only one is on the chip at a time. The slices of an
/// accumulator (model.serialised-matmuls) are off-chip, too; they are joined right before their reduction.
///
///   a = concat(a.0, a.1)                      a = concat(a.0, a.1)
///   b = concat(b.0, b.1)                      a' = reduce_scatter(a)
///   a', b' = reduce_scatter(a, b)    --->     w = sgd(w, a')
///   w = sgd(w, a')                            b = concat(b.0, b.1)
///   v = sgd(v, b')                            b' = reduce_scatter(b)
///                                             v = sgd(v, b')
///
/// Background exchanges are not split.
void split_reductions(Region& region, const std::set<TensorId>& off_chip);

}  // namespace poprun
