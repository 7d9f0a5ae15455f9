#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/graph/graph.h"

/// Checkpoints: the activations that are kept for the backward pass.
/// Forward operations that run again in the backward pass.
namespace poprun {

/// The activations of a stage that are kept. Everything else that the backward pass reads is recomputed from it.
enum class Recomputation : std::uint8_t {
  kNone,      ///< Everything.
  kStandard,  ///< What makes the least work within a memory goal.
  kLayer,     ///< The inputs of each layer.
  kPipeline,  ///< The inputs of the stage; everything in the last stage.
  kAll,       ///< The inputs of every stage, including the last.
};

/// "none", "standard", "layer", "pipeline" or "all".
std::string_view name_of(Recomputation mode);

/// The inverse of `name_of`. Errors: kUsage, lists the names.
Result<Recomputation> parse_recomputation(std::string_view name);

/// The default: kPipeline if several stages work at the same time, so that activations
/// wait in stashes, otherwise kNone. The launcher, which cannot know the model's stages, shows what it expects by the
/// same rule (launcher/options/pipeline.cc).
Recomputation default_recomputation(std::size_t stages, bool is_sequential);

struct RecomputationOptions {
  Recomputation mode = Recomputation::kNone;
  std::string checkpoints;  ///< Activations whose names it matches (ECMAScript) are kept; empty: none.
  std::string recompute;    ///< Likewise, activations that are recomputed.
  double memory = 0.5;      ///< Goal of kStandard: proportion of the IPU's memory.
};

/// A micro-batch's operations by index: the forward pass, then from the first backward operation on the backward pass.
/// Valid as long as the region stays as it is.
class MicroBatch {
 public:
  using Index = std::uint32_t;
  static constexpr Index kNone = std::numeric_limits<Index>::max();

  MicroBatch(const Graph& graph, Place place);

  [[nodiscard]] const std::vector<Operation>& operations() const { return operations_; }

  /// Forward operations come before it.
  [[nodiscard]] Index backward() const { return backward_; }

  /// The forward operation that makes a tensor and can run again with the same result, or kNone. Those that update a
  /// tensor or read one that is updated, exchange data with the host, or give what the step reports, cannot.
  [[nodiscard]] Index maker(TensorId tensor) const { return makers_.at(index_of(tensor)); }

  [[nodiscard]] std::uint32_t last_stage() const { return last_stage_; }

 private:
  const std::vector<Operation>& operations_;
  Index backward_ = 0;
  std::vector<Index> makers_;  ///< By tensor.
  std::uint32_t last_stage_ = 0;
};

/// By tensor: true if it is kept. Tensors without a MicroBatch::maker always are.
///
/// kLayer keeps what crosses a layer's boundary within a stage, residual connections too, and the last layer of the
/// last stage: its backward pass follows at once, so recomputing it saves nothing. That is why kPipeline keeps all of
/// the last stage.
///
/// Requires: mode != kStandard.
std::vector<bool> kept_by(Recomputation mode, const MicroBatch& micro_batch, std::size_t tensor_count);

/// Activations whose fate the job has chosen by name.
struct ChosenByName {
  std::vector<TensorId> kept;
  std::vector<TensorId> recomputed;

  void apply_to(std::vector<bool>& kept_tensors) const;
};

/// Errors: kUsage, a pattern that is none, that matches nothing that can be recomputed, or that matches what the other
/// one does.
Result<ChosenByName> choose_by_name(const Graph& graph, const MicroBatch& micro_batch,
                                    const RecomputationOptions& options);

/// By backward operation, from MicroBatch::backward() on: the forward operations whose clones run directly before it,
/// rising.
using ClonePlan = std::vector<std::vector<MicroBatch::Index>>;

/// Operations that must run again so that the backward pass reads no activation of its own stage that is not kept. A
/// clone stands directly before the first backward operation that needs it, so a segment's recomputed values live only
/// while its backward operations run; each operation has at most one.
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
/// `kept`: by tensor; matters for tensors with a maker. Values from another stage are read as they are: they are inputs
/// of the stage. Cost: linear.
ClonePlan plan_clones(const MicroBatch& micro_batch, const std::vector<bool>& kept);

/// True if an operation of `stage` in the backward pass, or a clone there, reads a clone's value instead of the tensor.
bool reads_clone(const MicroBatch& micro_batch, const std::vector<bool>& kept, std::uint32_t stage, TensorId tensor);

/// Rewrites the region by a plan for the same `kept`. Clones have the original's attributes, so they draw the same
/// random numbers, and write tensors called NAME.recomputed.
void insert_clones(Graph& graph, Place place, const ClonePlan& plan, const std::vector<bool>& kept);

}  // namespace poprun
