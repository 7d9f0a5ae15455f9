#include <cmath>

#include "replica/ops/face/operator.h"

/// round_through(x)  ->  y: the nearest integers, ties to even, for f32 of any shape and layout. The gradient passes
/// unchanged, as if y were x: the straight-through estimator of Bengio, Leonard and Courville, "Estimating or
/// propagating gradients through stochastic neurons for conditional computation", 2013, used for fake quantisation.
namespace poprun::ops::round_through {
namespace {

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kF32) {
    return shape_error("round_through", s, "one f32 tensor");
  }
  return std::vector{s.inputs[0]};
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([n = s.inputs[0].elements()](const Operands& t) {
    for (std::int64_t i = 0; i < n; ++i) {
      t.output_f32(0)[i] = std::nearbyint(t.input_f32(0)[i]);
    }
  });
}

Work work(const Signature& s) {
  return elementwise_work(s, 1);
}

void gradient(Differentiator& d) {
  d.set_input_gradient(0, d.output_gradient(0));
}

}  // namespace

std::vector<Operator> operators() {
  return {in_place({"round_through", shape, gradient, work, numerics}, {0})};
}

}  // namespace poprun::ops::round_through
