#include "replica/ops/face/simd.h"
#include "replica/ops/optimizers/optimizer.h"
#include "replica/ops/optimizers/update_rule.h"

/// Lion (Chen et al., "Symbolic discovery of optimization algorithms", arXiv:2302.06675, algorithm 2), in place.
///
///   lion(w, g, m, rate)  beta1=. beta2=.  ->  w, m
///
///   G = scale * g
///   w -= rate * (sign(beta1 * m + (1 - beta1) * G) + weight_decay * w), where sign(0) is 0
///   m = beta2 * m + (1 - beta2) * G
namespace poprun::optimizers::lion {
namespace {

constexpr const char* kKind = "lion";

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (!update_rule::fits(s, 1, 1, {"beta1", "beta2"})) {
    return shape_error(kKind, s, "w, g and m of the same f32 type, rate f32[], scale, weight_decay, beta1 and beta2");
  }
  return std::vector{s.inputs[0], s.inputs[0]};
}

struct Rule {
  std::int64_t n;
  float scale;
  float weight_decay;
  float beta1;
  float beta2;
  float rest1;  ///< 1 - beta1, rounded once.
  float rest2;

  explicit Rule(const Signature& s)
      : n(s.inputs[0].elements()),
        scale(update_rule::f32(s, "scale")),
        weight_decay(update_rule::f32(s, "weight_decay")),
        beta1(update_rule::f32(s, "beta1")),
        beta2(update_rule::f32(s, "beta2")),
        rest1(static_cast<float>(1 - s.attributes.real("beta1"))),
        rest2(static_cast<float>(1 - s.attributes.real("beta2"))) {}
};

POPRUN_SIMD void update(const Rule& rule, float rate, const float* __restrict g, float* __restrict m,
                        float* __restrict w) {
  for (std::int64_t i = 0; i < rule.n; ++i) {
    const float G = rule.scale * g[i];
    const float mixed = rule.beta1 * m[i] + rule.rest1 * G;
    const float negative = mixed < 0 ? -1.0F : mixed;  // A NaN stays a NaN.
    const float sign = mixed > 0 ? 1.0F : negative;
    w[i] -= rate * (sign + rule.weight_decay * w[i]);
    m[i] = rule.beta2 * m[i] + rule.rest2 * G;
  }
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([rule = Rule(s)](const Operands& t) {
    if (const auto now = update_rule::for_run(rule, t, 4)) {
      update(*now, *t.input_f32(3), t.input_f32(1), t.output_f32(1), t.output_f32(0));
    }
  });
}

/// The operations are one for the scale, three for the mix, one for the sign, three for w and three for m.
Work work(const Signature& s) {
  return update_rule::work(s, 11, 11);
}

}  // namespace

Optimizer optimizer() {
  return {.rule = on_shards({kKind, shape, nullptr, work, numerics},
                            {.inputs = 3, .outputs = 2}),  // Inputs w, g and m; outputs w and m.
          .states = {{"m"}},
          .hyper_parameters = {update_rule::beta1("0.9"), update_rule::beta2("0.99")}};
}

}  // namespace poprun::optimizers::lion
