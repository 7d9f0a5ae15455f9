#pragma once

#include <optional>

#include "replica/graph/graph.h"

namespace poprun {

/// What a model's forward pass ends in: scalars over the micro-batch, and what inference puts out.
struct ModelOutputs {
  TensorId loss{};     ///< Mean over `count` items; what training lowers.
  TensorId correct{};  ///< Items answered right; -`count` where the loss knows no right and wrong.
  TensorId count{};    ///< Items that count: padding does not.
  std::optional<TensorId> prediction = {};  ///< [micro-batch, ...], for classifiers logits.
  bool scored = true;  ///< False: there are no scalars, only a prediction. Never in training.
};

}  // namespace poprun
