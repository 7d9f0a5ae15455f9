#pragma once

#include <vector>

#include "replica/compiler/recomputation/micro_batch.h"
#include "replica/graph/graph.h"

/// Forward operations that run again in the backward pass.
namespace poprun {

/// By backward operation, from MicroBatch::backward() on: the forward operations whose clones run
/// directly before it, rising.
using ClonePlan = std::vector<std::vector<MicroBatch::Index>>;

/// What must run again so that the backward pass reads no activation of its own stage that is not
/// kept. A clone stands directly before the first backward operation that needs it, so a segment's
/// recomputed values live only while its backward operations run; each operation has at most one.
///
///   kept: x            x = ..                x = ..
///                      a = relu(x)           a = relu(x)
///                      b = tanh(a)           b = tanh(a)
///                      ..                    ..
///                      b' = f(b, ..)         a.recomputed = relu(x)
///                                            b.recomputed = tanh(a.recomputed)
///                                            b' = f(b.recomputed, ..)
///                      a' = g(a, b')         a' = g(a.recomputed, b')
///
/// `kept`: by tensor; matters for tensors with a maker. Values from another stage are read as they
/// are: they are inputs of the stage. Cost: linear.
ClonePlan plan_clones(const MicroBatch& micro_batch, const std::vector<bool>& kept);

/// True if an operation of `stage` in the backward pass, or a clone there, reads a clone's value
/// instead of the tensor.
bool reads_clone(const MicroBatch& micro_batch, const std::vector<bool>& kept, std::uint32_t stage,
                 TensorId tensor);

/// Rewrites the region by a plan for the same `kept`. Clones have the original's attributes, so
/// they draw the same random numbers, and write tensors called NAME.recomputed.
void insert_clones(Graph& graph, Place place, const ClonePlan& plan, const std::vector<bool>& kept);

}  // namespace poprun
