#pragma once

#include <optional>
#include <string>
#include <vector>

#include "replica/graph/graph.h"

namespace poprun {

/// A part of a loss: the mean over the labels that count.
struct LossTerm {
  TensorId loss{};
  TensorId count{};               ///< Of these labels.
  std::string labels = "labels";  ///< The dataset's tensor that they are in.
};

/// The results of a model's forward pass: scalars over the micro-batch, and the outputs of inference.
struct ModelOutputs {
  TensorId loss{};                          ///< Mean over `count` items, or the sum of `terms`; training minimises it.
  TensorId correct{};                       ///< Correctly answered items; -`count` if the loss has no accuracy.
  TensorId count{};                         ///< Items that count, that is, without padding.
  std::optional<TensorId> prediction = {};  ///< [micro-batch, ...]; logits for classifiers.
  std::vector<LossTerm> terms = {};         ///< Of a loss with several.
  bool scored = true;                       ///< False: there are no scalars, only a prediction. Never in training.
};

}  // namespace poprun
