#include <cmath>

#include "replica/ops/optimizers/adam_rule.h"
#include "replica/ops/simd.h"

/// LAMB (You et al., "Large batch optimization for deep learning", arXiv:1904.00962, algorithm 2
/// with phi(z) = z).
///
///   U = u + weight_decay * w
///   w -= rate * |w| / |U| * U, norms over the whole tensor; the quotient is 1 if one of them is 0
///
/// Norms are summed in double in kLanes interleaved sums, whatever the instruction set.
namespace poprun {
namespace {

using adam_rule::Correction;
using adam_rule::direction;
using adam_rule::Rule;
using adam_rule::update_moments;

constexpr const char* kKind = "lamb";

constexpr std::int64_t kLanes = 8;

/// Squared norms of w and of U, lane by lane.
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

/// Moments and norms; the trust ratio over all tiles; then w, computed again from m and v.
Work lamb_work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = 27 * s.inputs[0].elements();
  work.memory_traffic += s.inputs[0].bytes() * 3;
  work.compute_sets = 3;
  return work;
}

}  // namespace

Optimizer lamb_optimizer() {
  return adam_rule::optimizer({kKind, adam_rule::shape<kKind>, nullptr, lamb_work, lamb_numerics});
}

}  // namespace poprun
