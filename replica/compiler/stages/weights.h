#pragma once

#include <vector>

#include "replica/compiler/planner/options.h"
#include "replica/compiler/stages/balance.h"
#include "replica/compiler/stages/cuts.h"
#include "replica/device/device.h"

namespace poprun {

/// What the job does with the layers of its forward pass.
struct LayerUse {
  const Device& device;
  bool training = false;
  bool half = false;                         ///< Weights, activations and gradients are float16.
  bool half_partials = false;                ///< Products are also summed in float16.
  std::int64_t permille = kDefaultPermille;  ///< Part of a tile's memory for a product's values.
  std::int64_t states = 0;  ///< float32 numbers that the optimiser keeps for each of a parameter.
};

/// What each layer of the model costs, by estimate.
///
///   cycles       convolutions' and matmuls' as they are planned, in training with their two
///                gradients (one for what comes from the host); other operators' work, in training
///                three times: the backward pass takes twice as long
///   bytes        in training a parameter has a gradient, and on the IPU of its first user its
///                optimiser state
///   activations  all outputs of its operations
///
/// A parameter that several layers use weighs on each of them.
std::vector<LayerWeight> layer_weights(const ForwardPass& forward, const LayerUse& use);

}  // namespace poprun
