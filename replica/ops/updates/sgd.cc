#include "replica/ops/simd.h"
#include "replica/ops/updates/update_rule.h"

/// Stochastic gradient descent, in place.
///
///   sgd(w, g, rate)          ->  w
///   momentum(w, g, v, rate)  momentum=. nesterov=0|1  ->  w, v
///
///   G = scale * g + weight_decay * w
///   v = momentum * v + G
///
///   sgd       w -= rate * G
///   momentum  w -= rate * v, with Nesterov w -= rate * (G + momentum * v)
///
/// torch.optim.SGD's rules with dampening 0.
namespace poprun {
namespace {

Result<std::vector<TensorType>> sgd_shape(const Signature& s) {
  if (!update_rule::fits(s, 0, 1, {})) {
    return shape_error("sgd", s, "w and g of one f32 type, rate f32[], scale, weight_decay");
  }
  return std::vector{s.inputs[0]};
}

Result<std::vector<TensorType>> momentum_shape(const Signature& s) {
  if (!update_rule::fits(s, 1, 1, {"momentum", "nesterov"})) {
    return shape_error("momentum", s,
                       "w, g and v of one f32 type, rate f32[], scale, weight_decay, momentum, "
                       "nesterov");
  }
  return std::vector{s.inputs[0], s.inputs[0]};
}

struct Rule {
  std::int64_t n;
  float scale;
  float weight_decay;
  float momentum;

  /// The rule of one run; `own` as for scale_of.
  [[nodiscard]] Rule at(const Operands& t, std::size_t own) const {
    Rule rule = *this;
    rule.scale = update_rule::scale_of(scale, t, own);
    return rule;
  }

  explicit Rule(const Signature& s)
      : n(s.inputs[0].elements()),
        scale(update_rule::f32(s, "scale")),
        weight_decay(update_rule::f32(s, "weight_decay")),
        momentum(s.attributes.has("momentum") ? update_rule::f32(s, "momentum") : 0.0F) {}
};

POPRUN_SIMD void sgd_update(const Rule& rule, float rate, const float* __restrict g,
                            float* __restrict w) {
  for (std::int64_t i = 0; i < rule.n; ++i) {
    w[i] -= rate * (rule.scale * g[i] + rule.weight_decay * w[i]);
  }
}

POPRUN_SIMD void momentum_update(const Rule& rule, float rate, const float* __restrict g,
                                 float* __restrict v, float* __restrict w) {
  for (std::int64_t i = 0; i < rule.n; ++i) {
    v[i] = rule.momentum * v[i] + (rule.scale * g[i] + rule.weight_decay * w[i]);
    w[i] -= rate * v[i];
  }
}

POPRUN_SIMD void nesterov_update(const Rule& rule, float rate, const float* __restrict g,
                                 float* __restrict v, float* __restrict w) {
  for (std::int64_t i = 0; i < rule.n; ++i) {
    const float gradient = rule.scale * g[i] + rule.weight_decay * w[i];
    v[i] = rule.momentum * v[i] + gradient;
    w[i] -= rate * (gradient + rule.momentum * v[i]);
  }
}

std::unique_ptr<Kernel> sgd_numerics(const Signature& s) {
  return make_kernel([rule = Rule(s)](const Operands& t) {
    if (const Rule now = rule.at(t, 3); now.scale != 0) {
      sgd_update(now, *t.input_f32(2), t.input_f32(1), t.output_f32(0));
    }
  });
}

std::unique_ptr<Kernel> momentum_numerics(const Signature& s) {
  const auto update = s.attributes.integer("nesterov") != 0 ? nesterov_update : momentum_update;
  return make_kernel([rule = Rule(s), update](const Operands& t) {
    if (const Rule now = rule.at(t, 4); now.scale != 0) {
      update(now, *t.input_f32(3), t.input_f32(1), t.output_f32(1), t.output_f32(0));
    }
  });
}

Work sgd_work(const Signature& s) {
  return elementwise_work(s, 4);
}

Work momentum_work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = (s.attributes.integer("nesterov") != 0 ? 8 : 6) * s.inputs[0].elements();
  return work;
}

}  // namespace

std::vector<Operator> sgd_operators() {
  return {{"sgd", sgd_shape, nullptr, sgd_work, sgd_numerics},
          {"momentum", momentum_shape, nullptr, momentum_work, momentum_numerics}};
}

}  // namespace poprun
