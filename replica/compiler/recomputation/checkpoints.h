#pragma once

#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/compiler/recomputation/micro_batch.h"
#include "replica/compiler/recomputation/recomputation.h"
#include "replica/graph/graph.h"

/// Checkpoints: the activations that are kept for the backward pass.
namespace poprun {

/// By tensor: true if it is kept. Tensors without a MicroBatch::maker always are.
///
/// kLayer keeps what crosses a layer's boundary within a stage, residual connections too, and the
/// last layer of the last stage: its backward pass follows at once, so recomputing it saves
/// nothing. That is why kPipeline keeps all of the last stage.
///
/// Requires: mode != kStandard.
std::vector<bool> kept_by(Recomputation mode, const MicroBatch& micro_batch,
                          std::size_t tensor_count);

/// Activations whose fate the job has chosen by name.
struct ChosenByName {
  std::vector<TensorId> kept;
  std::vector<TensorId> recomputed;

  void apply_to(std::vector<bool>& kept_tensors) const;
};

/// Errors: kUsage, a pattern that is none, that matches nothing that can be recomputed, or that
/// matches what the other one does.
Result<ChosenByName> choose_by_name(const Graph& graph, const MicroBatch& micro_batch,
                                    const RecomputationOptions& options);

}  // namespace poprun
