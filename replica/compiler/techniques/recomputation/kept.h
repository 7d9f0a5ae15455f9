#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/choices/choices.h"
#include "replica/graph/graph.h"

/// Recomputation (rematerialisation, activation checkpointing): which activations are kept for the backward pass, and
/// which operations run again.
namespace poprun {

struct RecomputationOptions {
  Recomputation mode = Recomputation::kNone;
  std::string checkpoints;  ///< Activations whose names match this (ECMAScript) are kept; if empty, none.
  std::string recompute;    ///< Activations whose names match this are recomputed.
  double memory = 0.5;      ///< Goal of kStandard: fraction of the IPU's memory.
};

/// A micro-batch's operations by index: first the forward pass, then the backward pass, which begins at the first
/// backward operation. The object is valid while the region is unchanged.
class MicroBatch {
 public:
  using Index = std::uint32_t;
  static constexpr Index kNone = std::numeric_limits<Index>::max();

  MicroBatch(const Graph& graph, Place place);

  [[nodiscard]] const std::vector<Operation>& operations() const { return operations_; }

  [[nodiscard]] Index backward() const { return backward_; }

  /// Returns the forward operation that computes a tensor and can run again with the same result, or kNone. Operations
  /// that update a tensor, read an updated tensor, exchange data with the host or compute a reported value cannot.
  [[nodiscard]] Index maker(TensorId tensor) const { return makers_.at(index_of(tensor)); }

  [[nodiscard]] std::uint32_t last_stage() const { return last_stage_; }

 private:
  const std::vector<Operation>& operations_;
  Index backward_ = 0;
  std::vector<Index> makers_;  ///< Indexed by tensor.
  std::uint32_t last_stage_ = 0;
};

/// Returns, for each tensor, whether it is kept. Tensors without a MicroBatch::maker are always kept.
///
/// kLayer keeps tensors that cross a layer's boundary within a stage, including residual connections. It also keeps the
/// last layer of the last stage, whose backward pass follows immediately, so recomputing it would save nothing. For the
/// same reason, kPipeline keeps the whole last stage. Requires: mode != kStandard.
std::vector<bool> kept_by(Recomputation mode, const MicroBatch& micro_batch, std::size_t tensor_count);

struct ChosenByName {
  std::vector<TensorId> kept;
  std::vector<TensorId> recomputed;

  void apply_to(std::vector<bool>& kept_tensors) const;
};

/// Finds the activations that the options name. Errors: kUsage if a pattern is not a valid regular expression, matches
/// nothing that can be recomputed, or matches the same activation as the other pattern.
Result<ChosenByName> choose_by_name(const Graph& graph, const MicroBatch& micro_batch,
                                    const RecomputationOptions& options);

/// For each backward operation, starting at backward(): the forward operations cloned directly before it, in order.
using ClonePlan = std::vector<std::vector<MicroBatch::Index>>;

/// Returns the operations that must run again so that the backward pass reads only kept activations of its own stage. A
/// clone is placed directly before the first backward operation that needs it, so a segment's recomputed values live
/// only while its backward operations run. Each operation has at most one clone.
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
/// `kept` is indexed by tensor, and matters only for tensors with a maker. Values from another stage are read as they
/// are, because they are inputs of the stage. Cost: linear.
ClonePlan plan_clones(const MicroBatch& micro_batch, const std::vector<bool>& kept);

/// Returns whether an operation of `stage` in the backward pass, or a clone there, reads a clone instead of the tensor.
bool reads_clone(const MicroBatch& micro_batch, const std::vector<bool>& kept, std::uint32_t stage, TensorId tensor);

/// Rewrites the region according to a plan for the same `kept`. Clones have the original's attributes, so they draw the
/// same random numbers, and write tensors called NAME.recomputed.
void insert_clones(Graph& graph, Place place, const ClonePlan& plan, const std::vector<bool>& kept);

}  // namespace poprun
