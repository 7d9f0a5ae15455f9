#pragma once

#include "replica/compiler/job/compile_options.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Stores a job's weights, activations and gradients in float16.
///
/// The optimiser's state becomes float16 only if `options` requests it. Scalars, host streams, metrics, constants,
/// running statistics, statistics that normalisations keep for their gradients, and tensors with Tensor::keeps_f32 stay
/// float32. Operators always compute in float32 (ops/half/half_kernel.h), so only stored values are rounded. Products
/// whose results are stored in float16 keep the half partials that the pass "products" has set. Requires: options.half
/// is set.
void use_half(Graph& graph, const PrecisionOptions& options);

}  // namespace poprun
