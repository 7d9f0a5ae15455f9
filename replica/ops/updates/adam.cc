#include <cmath>

#include "replica/ops/simd.h"
#include "replica/ops/updates/update_rule.h"

/// Adam and its relatives, in place. `step` counts updates from 1.
///
///   adam(w, g, m, v, rate, step)   beta1=. beta2=. epsilon=.  ->  w, m, v
///   adamw                          the same
///   lamb                           the same
///
///   G = scale * g, adam: + weight_decay * w
///   m = beta1 * m + (1 - beta1) * G          M = m / (1 - beta1^step)
///   v = beta2 * v + (1 - beta2) * G * G      V = v / (1 - beta2^step)
///   u = M / (sqrt(V) + epsilon)
///
///   adam    w -= rate * u                                     torch.optim.Adam
///   adamw   w -= rate * (u + weight_decay * w)                torch.optim.AdamW
///   lamb    U = u + weight_decay * w;  w -= rate * |w| / |U| * U, the quotient of norms over the
///           whole tensor, 1 where one of them is 0. You et al., "Large batch optimization for deep
///           learning", arXiv:1904.00962, algorithm 2 with phi(z) = z.
///
/// beta^step is computed in double. Norms are added in double in kLanes interleaved sums, whatever
/// the instruction set.
namespace poprun {
namespace {

constexpr std::int64_t kLanes = 8;

bool fits(const Signature& s) {
  return update_rule::fits(s, 2, 2, {"beta1", "beta2", "epsilon"});
}

template <const char* const& kind>
Result<std::vector<TensorType>> shape(const Signature& s) {
  if (!fits(s)) {
    return shape_error(kind, s,
                       "w, g, m and v of one f32 type, rate and step f32[], scale, weight_decay, "
                       "beta1, beta2, epsilon");
  }
  return std::vector<TensorType>(3, s.inputs[0]);
}

/// The attributes, and what a step makes of them.
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

  /// The rule of one run.
  [[nodiscard]] Rule at(const Operands& t) const {
    Rule rule = *this;
    rule.scale = update_rule::scale_of(scale, t, 6);
    return rule;
  }

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

/// What one step multiplies by: u = (m * m_factor) / (sqrt(v) * v_factor + epsilon).
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

/// u of the formulas above.
inline float direction(const Rule& rule, const Correction& by, float m, float v) {
  return m * by.m_factor / (std::sqrt(v) * by.v_factor + rule.epsilon);
}

POPRUN_SIMD void adam_update(const Rule& rule, const Correction& by, float rate,
                             const float* __restrict g, float* __restrict m, float* __restrict v,
                             float* __restrict w) {
  for (std::int64_t i = 0; i < rule.n; ++i) {
    update_moments(rule, rule.scale * g[i] + rule.weight_decay * w[i], m[i], v[i]);
    w[i] -= rate * direction(rule, by, m[i], v[i]);
  }
}

POPRUN_SIMD void adamw_update(const Rule& rule, const Correction& by, float rate,
                              const float* __restrict g, float* __restrict m, float* __restrict v,
                              float* __restrict w) {
  for (std::int64_t i = 0; i < rule.n; ++i) {
    update_moments(rule, rule.scale * g[i], m[i], v[i]);
    w[i] -= rate * (direction(rule, by, m[i], v[i]) + rule.weight_decay * w[i]);
  }
}

/// Squares of w and of U, lane by lane.
struct Norms {
  double w[kLanes] = {};
  double U[kLanes] = {};
};

POPRUN_SIMD void lamb_moments(const Rule& rule, const Correction& by, const float* __restrict g,
                              const float* __restrict w, float* __restrict m, float* __restrict v,
                              Norms& norms) {
  const std::int64_t whole = rule.n / kLanes * kLanes;
  const auto add = [&](std::int64_t i, std::int64_t lane) {
    update_moments(rule, rule.scale * g[i], m[i], v[i]);
    const double U = direction(rule, by, m[i], v[i]) + rule.weight_decay * w[i];
    norms.w[lane] += static_cast<double>(w[i]) * static_cast<double>(w[i]);
    norms.U[lane] += U * U;
  };
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      add(i + lane, lane);
    }
  }
  for (std::int64_t i = whole; i < rule.n; ++i) {
    add(i, i - whole);
  }
}

/// `rate` is the learning rate times the tensor's trust ratio.
POPRUN_SIMD void lamb_apply(const Rule& rule, const Correction& by, float rate,
                            const float* __restrict m, const float* __restrict v,
                            float* __restrict w) {
  for (std::int64_t i = 0; i < rule.n; ++i) {
    w[i] -= rate * (direction(rule, by, m[i], v[i]) + rule.weight_decay * w[i]);
  }
}

double trust_ratio(const Norms& norms) {
  double w = 0;
  double U = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    w += norms.w[lane];
    U += norms.U[lane];
  }
  return w > 0 && U > 0 ? std::sqrt(w) / std::sqrt(U) : 1.0;
}

template <auto update>
std::unique_ptr<Kernel> elementwise_numerics(const Signature& s) {
  return make_kernel([rule = Rule(s)](const Operands& t) {
    if (const Rule now = rule.at(t); now.scale != 0) {
      update(now, Correction(rule, *t.input_f32(5)), *t.input_f32(4), t.input_f32(1),
             t.output_f32(1), t.output_f32(2), t.output_f32(0));
    }
  });
}

std::unique_ptr<Kernel> lamb_numerics(const Signature& s) {
  return make_kernel([rule = Rule(s)](const Operands& t) {
    const Rule now = rule.at(t);
    if (now.scale == 0) {
      return;
    }
    const Correction by(rule, *t.input_f32(5));
    float* w = t.output_f32(0);
    float* m = t.output_f32(1);
    float* v = t.output_f32(2);
    Norms norms;
    lamb_moments(now, by, t.input_f32(1), w, m, v, norms);
    const auto rate = static_cast<float>(*t.input_f32(4) * trust_ratio(norms));
    lamb_apply(rule, by, rate, m, v, w);
  });
}

/// Flops per element; a square root and a division count one each.
Work adam_work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = 15 * s.inputs[0].elements();
  return work;
}

/// Moments and norms, the trust ratio from all tiles, then w once more from m and v.
Work lamb_work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = 27 * s.inputs[0].elements();
  work.memory_traffic += s.inputs[0].bytes() * 3;
  work.compute_sets = 3;
  return work;
}

constexpr const char* kAdam = "adam";
constexpr const char* kAdamW = "adamw";
constexpr const char* kLamb = "lamb";

}  // namespace

std::vector<Operator> adam_operators() {
  return {{kAdam, shape<kAdam>, nullptr, adam_work, elementwise_numerics<adam_update>},
          {kAdamW, shape<kAdamW>, nullptr, adam_work, elementwise_numerics<adamw_update>},
          {kLamb, shape<kLamb>, nullptr, lamb_work, lamb_numerics}};
}

}  // namespace poprun
