#pragma once

#include <set>

#include "replica/base/units.h"
#include "replica/compiler/job/pass.h"

/// Memory that a job's tensors need, with their actual types, if the whole model is on one IPU. The job has passed
/// "precision" but has not been planned. Code, exchange buffers, temporaries of operators and gaps are left out.
namespace poprun {

/// Bytes of each kind that inference or training needs.
struct Needs {
  Bytes weights;
  Bytes moving;  ///< Moving averages of batch normalisations.
  Bytes constants;
  Bytes optimizer_state;  ///< Including master weights.
  Bytes gradients;        ///< Gradients of weights in one step, or their accumulators.
  Bytes activations;      ///< Including the input batch.
  Bytes passing;          ///< Everything else: gradients of activations, scalars.

  [[nodiscard]] Bytes total() const {
    return weights + moving + constants + optimizer_state + gradients + activations + passing;
  }
};

/// Returns the bytes that are live at the peak of evaluation or inference of one batch. Requires: job.evaluation.
Needs inference_needs(const Job& job);

/// Returns the needs of training as in section 3.4.4 of Graphcore's guide: everything that the backward pass reads from
/// the forward pass is kept at the same time, with all gradients of weights. `passing` is 0. Requires: job.training.
Needs kept_needs(const Job& job);

/// Returns the bytes that are live at the memory peak of a training step. They are a lower bound for compiled jobs that
/// neither recompute nor share bytes between operands of an operator. Requires: job.training. Cost: linear.
Needs training_needs(const Job& job);

/// Returns the tensors of the forward pass that the backward pass reads: activations and the input batch.
std::set<TensorId> kept_activations(const Job& job);

}  // namespace poprun
