#pragma once

#include "replica/graph/graph.h"

namespace poprun {

struct PrecisionOptions {
  bool half = false;                 ///< The others need it.
  bool stochastic_rounding = false;  ///< What is stored in float16 is rounded at random.
  bool master_weights = false;       ///< The optimiser works on float32 weights of its own.
};

/// Stores a job's weights, activations and gradients in float16.
///
/// Float32 stay: scalars, what the host streams bring and read, metrics, optimiser state,
/// constants, running statistics, the statistics that normalisations keep for their gradients, and
/// what the model keeps so (Tensor::keeps_f32). Operators compute in float32 whatever they read
/// (ops/half/half_kernel.h), so only what is stored is rounded. Products that the pass "products"
/// gave half partials keep them where they store float16.
///
/// Requires: options.half.
void use_half(Graph& graph, const PrecisionOptions& options);

}  // namespace poprun
