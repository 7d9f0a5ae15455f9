#pragma once

#include <set>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/job/pass.h"

/// Memory of a job's tensors on one IPU that holds the whole model, by their true types: the job as the compiler's pass
/// "precision" leaves it, before anything is planned. Code, exchange buffers, temporaries of operators and gaps are
/// left out.
namespace poprun {

/// Bytes of one kind of work.
struct Needs {
  Bytes weights;
  Bytes moving;  ///< Moving averages of batch normalisations.
  Bytes constants;
  Bytes optimizer_state;  ///< With master weights.
  Bytes gradients;        ///< Those of weights: a step's, or their accumulators.
  Bytes activations;      ///< With the input batch.
  Bytes passing;          ///< Everything else: gradients of activations, scalars.

  [[nodiscard]] Bytes total() const {
    return weights + moving + constants + optimizer_state + gradients + activations + passing;
  }
};

/// Evaluation, or inference, of a batch: what is live at its fullest moment. Requires: job.evaluation.
Needs inference_needs(const Job& job);

/// Training as section 3.4.4 of Graphcore's guide takes it: all that the backward pass reads of the forward pass is
/// kept at once, with all gradients of weights. Nothing passing.
/// Requires: job.training.
Needs kept_needs(const Job& job);

/// A training step at its fullest moment. No compiled job that neither recomputes nor shares bytes between operands of
/// an operator needs less. Requires: job.training. Cost: linear.
Needs training_needs(const Job& job);

/// Tensors that the backward pass reads of the forward pass: activations and the input batch.
std::set<TensorId> kept_activations(const Job& job);

}  // namespace poprun
