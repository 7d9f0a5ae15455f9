#include "replica/ops/face/simd.h"
#include "replica/ops/optimizers/adam_rule.h"

/// Adam (Kingma and Ba, arXiv:1412.6980) with weight decay added to the gradient, as in torch.optim.Adam.
///
///   w -= rate * u
namespace poprun::optimizers::adam {
namespace {

using adam_rule::Correction;
using adam_rule::direction;
using adam_rule::Rule;
using adam_rule::update_moments;

constexpr const char* kKind = "adam";

POPRUN_SIMD void update(const Rule& rule, const Correction& by, float rate, const float* __restrict g,
                        float* __restrict m, float* __restrict v, float* __restrict w) {
  for (std::int64_t i = 0; i < rule.n; ++i) {
    update_moments(rule, rule.scale * g[i] + rule.weight_decay * w[i], m[i], v[i]);
    w[i] -= rate * direction(rule, by, m[i], v[i]);
  }
}

}  // namespace

Optimizer optimizer() {
  return adam_rule::optimizer(on_shards(
      {kKind, adam_rule::shape<kKind>, nullptr, adam_rule::elementwise_work, adam_rule::elementwise_numerics<update>},
      {.inputs = 4, .outputs = 3}));  // Inputs w, g, m and v; outputs w, m and v.
}

}  // namespace poprun::optimizers::adam
