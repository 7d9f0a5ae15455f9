#pragma once

#include "replica/compiler/job/compile_options.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Stores a job's weights, activations and gradients in float16.
///
/// Float32 stay: scalars, what the host streams bring and read, metrics, optimiser state, constants, running
/// statistics, the statistics that normalisations keep for their gradients, and what the model keeps so
/// (Tensor::keeps_f32). Operators compute in float32 whatever they read (ops/half/half_kernel.h), so only what is
/// stored is rounded. Products that the pass "products" gave half partials keep them where they store float16.
///
/// Requires: options.half.
void use_half(Graph& graph, const PrecisionOptions& options);

}  // namespace poprun
