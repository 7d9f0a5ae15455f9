#pragma once

#include <cmath>
#include <vector>

#include "replica/ops/optimizers/optimizer.h"
#include "replica/ops/optimizers/update_rule.h"

/// The rule shared by Adam and its variants. `step` counts updates from 1.
///
///   KIND(w, g, m, v, rate, step)   beta1=. beta2=. epsilon=.  ->  w, m, v
///
///   G = scale * g (adam: + weight_decay * w)
///   m = beta1 * m + (1 - beta1) * G          M = m / (1 - beta1^step)
///   v = beta2 * v + (1 - beta2) * G * G      V = v / (1 - beta2^step)
///   u = M / (sqrt(V) + epsilon)
///
/// Each optimiser's file states its update of w. The powers beta^step are computed in double.
namespace poprun::adam_rule {

template <const char* const& kind>
Result<std::vector<TensorType>> shape(const Signature& s) {
  if (!update_rule::fits(s, 2, 2, {"beta1", "beta2", "epsilon"})) {
    return shape_error(kind, s,
                       "w, g, m and v of the same f32 type, rate and step f32[], scale, weight_decay, "
                       "beta1, beta2 and epsilon");
  }
  return std::vector<TensorType>(3, s.inputs[0]);
}

/// The attributes of the rule, and the values that one step derives from them.
struct Rule {
  std::int64_t n;
  float scale;
  float weight_decay;
  float beta1;
  float beta2;
  float rest1;  ///< 1 - beta1, rounded once.
  float rest2;
  float epsilon;
  double exact_beta1;
  double exact_beta2;

  explicit Rule(const Signature& s)
      : n(s.inputs[0].elements()),
        scale(update_rule::f32(s, "scale")),
        weight_decay(update_rule::f32(s, "weight_decay")),
        beta1(update_rule::f32(s, "beta1")),
        beta2(update_rule::f32(s, "beta2")),
        rest1(static_cast<float>(1 - s.attributes.real("beta1"))),
        rest2(static_cast<float>(1 - s.attributes.real("beta2"))),
        epsilon(update_rule::f32(s, "epsilon")),
        exact_beta1(s.attributes.real("beta1")),
        exact_beta2(s.attributes.real("beta2")) {}
};

/// The bias corrections of one step: u = (m * m_factor) / (sqrt(v) * v_factor + epsilon).
struct Correction {
  float m_factor;
  float v_factor;

  Correction(const Rule& rule, float step)
      : m_factor(static_cast<float>(1 / (1 - std::pow(rule.exact_beta1, step)))),
        v_factor(static_cast<float>(1 / std::sqrt(1 - std::pow(rule.exact_beta2, step)))) {}
};

/// Updates the moments of one element with gradient `x`.
inline void update_moments(const Rule& rule, float x, float& m, float& v) {
  m = rule.beta1 * m + rule.rest1 * x;
  v = rule.beta2 * v + rule.rest2 * (x * x);
}

/// Returns u, as defined above.
inline float direction(const Rule& rule, const Correction& by, float m, float v) {
  return m * by.m_factor / (std::sqrt(v) * by.v_factor + rule.epsilon);
}

/// Returns a kernel that calls `update(rule, correction, rate, g, m, v, w)` unless the factor is kSkip.
template <auto update>
std::unique_ptr<Kernel> elementwise_numerics(const Signature& s) {
  return make_kernel([rule = Rule(s)](const Operands& t) {
    if (const auto now = update_rule::for_run(rule, t, 6)) {
      update(*now, Correction(rule, *t.input_f32(5)), *t.input_f32(4), t.input_f32(1), t.output_f32(1), t.output_f32(2),
             t.output_f32(0));
    }
  });
}

/// Counts fifteen flops per element, where a square root or a division counts as one, and these operations: one for the
/// scale, three for m, four for v, six for the corrections of both, five for w.
inline Work elementwise_work(const Signature& s) {
  return update_rule::work(s, 15, 19);
}

inline Optimizer optimizer(Operator rule) {
  return {.rule = std::move(rule),
          .states = {{"m"}, {"v", /*may_be_half=*/false}},
          .counts_updates = true,
          .hyper_parameters = {update_rule::beta1("0.9"),
                               update_rule::beta2("0.999"),
                               {"epsilon", "1e-8", "Added to the denominator of the update", {{0, 1}}}}};
}

}  // namespace poprun::adam_rule
