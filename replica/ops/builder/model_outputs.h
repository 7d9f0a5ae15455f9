#pragma once

#include <optional>
#include <string>
#include <vector>

#include "replica/graph/graph.h"

namespace poprun {

/// A term of a loss: the mean over the labels that count.
struct LossTerm {
  TensorId loss{};
  TensorId count{};               ///< Number of labels that count.
  std::string labels = "labels";  ///< The dataset's tensor of labels.
};

/// The results of a model's forward pass: scalars over the micro-batch, and the outputs of inference.
struct ModelOutputs {
  TensorId loss{};                          ///< Mean over `count` items, or the sum of `terms`; training minimises it.
  TensorId correct{};                       ///< Number of correct items; -`count` if the loss has no accuracy.
  TensorId count{};                         ///< Number of items that count, which excludes padding.
  std::optional<TensorId> prediction = {};  ///< [micro-batch, ...]; logits for classifiers.
  std::vector<LossTerm> terms = {};         ///< The terms, if the loss has several.
  bool scored = true;                       ///< False: only a prediction, no scalars. Always true in training.
};

}  // namespace poprun
