
#include "replica/ops/face/simd.h"
#include "replica/ops/optimizers/optimizer.h"
#include "replica/ops/optimizers/update_rule.h"

/// Stochastic gradient descent with momentum, in place, as in torch.optim.SGD with dampening 0.
///
///   momentum(w, g, v, rate)  momentum=. nesterov=0|1  ->  w, v
///   G = scale * g + weight_decay * w
///   v = momentum * v + G
///   w -= rate * v, or with nesterov=1 w -= rate * (G + momentum * v)
namespace poprun::optimizers::momentum {
namespace {

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (!update_rule::fits(s, 1, 1, {"momentum", "nesterov"})) {
    return shape_error("momentum", s,
                       "w, g and v of the same f32 type, rate f32[], scale, weight_decay, momentum "
                       "and nesterov");
  }
  return std::vector{s.inputs[0], s.inputs[0]};
}

struct Rule {
  std::int64_t n;
  float scale;
  float weight_decay;
  float momentum;

  explicit Rule(const Signature& s)
      : n(s.inputs[0].elements()),
        scale(update_rule::f32(s, "scale")),
        weight_decay(update_rule::f32(s, "weight_decay")),
        momentum(update_rule::f32(s, "momentum")) {}
};

POPRUN_SIMD void plain_update(const Rule& rule, float rate, const float* __restrict g, float* __restrict v,
                              float* __restrict w) {
  for (std::int64_t i = 0; i < rule.n; ++i) {
    v[i] = rule.momentum * v[i] + (rule.scale * g[i] + rule.weight_decay * w[i]);
    w[i] -= rate * v[i];
  }
}

POPRUN_SIMD void nesterov_update(const Rule& rule, float rate, const float* __restrict g, float* __restrict v,
                                 float* __restrict w) {
  for (std::int64_t i = 0; i < rule.n; ++i) {
    const float gradient = rule.scale * g[i] + rule.weight_decay * w[i];
    v[i] = rule.momentum * v[i] + gradient;
    w[i] -= rate * (gradient + rule.momentum * v[i]);
  }
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const auto update = s.attributes.integer("nesterov") != 0 ? nesterov_update : plain_update;
  return make_kernel([rule = Rule(s), update](const Operands& t) {
    if (const auto now = update_rule::for_run(rule, t, 4)) {
      update(*now, *t.input_f32(3), t.input_f32(1), t.output_f32(1), t.output_f32(0));
    }
  });
}

/// The operations are one for the scale, two for v and two for w; Nesterov's rule adds a multiplication and an
/// addition.
Work work(const Signature& s) {
  return s.attributes.integer("nesterov") != 0 ? update_rule::work(s, 8, 7) : update_rule::work(s, 6, 5);
}

}  // namespace

Optimizer optimizer() {
  return {.rule = on_shards({"momentum", shape, nullptr, work, numerics},
                            {.inputs = 3, .outputs = 2}),  // Inputs w, g and v; outputs w and v.
          .states = {{"momentum"}},
          .hyper_parameters = {
              {"momentum", "0.9", "Fraction of the previous update that the next update keeps", {{0, 1, true, false}}},
              {"nesterov", "false", "Use Nesterov momentum"}}};
}

}  // namespace poprun::optimizers::momentum
