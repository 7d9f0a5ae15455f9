#include "replica/ops/face/simd.h"
#include "replica/ops/optimizers/optimizer.h"
#include "replica/ops/optimizers/update_rule.h"

/// Stochastic gradient descent, in place, as in torch.optim.SGD without momentum.
///
///   sgd(w, g, rate)  ->  w
///   w -= rate * (scale * g + weight_decay * w)
namespace poprun::optimizers::sgd {
namespace {

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (!update_rule::fits(s, 0, 1, {})) {
    return shape_error("sgd", s, "w and g of the same f32 type, rate f32[], scale and weight_decay");
  }
  return std::vector{s.inputs[0]};
}

POPRUN_SIMD void update(std::int64_t n, float scale, float weight_decay, float rate, const float* __restrict g,
                        float* __restrict w) {
  for (std::int64_t i = 0; i < n; ++i) {
    w[i] -= rate * (scale * g[i] + weight_decay * w[i]);
  }
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([n = s.inputs[0].elements(), fixed_scale = update_rule::f32(s, "scale"),
                      weight_decay = update_rule::f32(s, "weight_decay")](const Operands& t) {
    if (const auto scale = update_rule::scale_of(fixed_scale, t, 3)) {
      update(n, *scale, weight_decay, *t.input_f32(2), t.input_f32(1), t.output_f32(0));
    }
  });
}

/// The operations multiply the gradient by the rate and subtract it.
Work work(const Signature& s) {
  return update_rule::work(s, 4, 2);
}

}  // namespace

Optimizer optimizer() {
  // Inputs w and g; output w.
  return {.rule = on_shards({"sgd", shape, nullptr, work, numerics}, {.inputs = 2, .outputs = 1})};
}

}  // namespace poprun::optimizers::sgd
