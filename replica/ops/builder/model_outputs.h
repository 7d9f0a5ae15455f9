#pragma once

#include <optional>

#include "replica/graph/graph.h"

namespace poprun {

/// The results of a model's forward pass: scalars over the micro-batch, and the outputs of
/// inference.
struct ModelOutputs {
  TensorId loss{};     ///< Mean over `count` items; training minimises it.
  TensorId correct{};  ///< Correctly answered items; -`count` if the loss has no accuracy.
  TensorId count{};    ///< Items that count, that is, without padding.
  std::optional<TensorId> prediction = {};  ///< [micro-batch, ...]; logits for classifiers.
  bool scored = true;  ///< False: there are no scalars, only a prediction. Never in training.
};

}  // namespace poprun
