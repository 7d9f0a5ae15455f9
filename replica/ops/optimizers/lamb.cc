#include <algorithm>
#include <array>
#include <cmath>

#include "replica/ops/optimizers/adam_rule.h"
#include "replica/ops/optimizers/square_sum.h"
#include "replica/ops/simd.h"

/// LAMB (You et al., "Large batch optimization for deep learning", arXiv:1904.00962, algorithm 2
/// with phi(z) = z).
///
///   U = u + weight_decay * w
///   w -= rate * |w| / |U| * U, norms over the whole tensor; the quotient is 1 if one of them is 0
///
/// U is computed in float32, element by element, and the norms are exact sums of squares, rounded
/// once to double: pieces of a tensor give the same norms as the whole.
namespace poprun {
namespace {

using adam_rule::Correction;
using adam_rule::direction;
using adam_rule::Rule;
using adam_rule::update_moments;

constexpr const char* kKind = "lamb";

constexpr std::int64_t kBlock = 4096;  ///< Elements whose U is held for its norm.

/// Updates the moments of `n` elements, and computes their U.
POPRUN_SIMD void lamb_moments(const Rule& rule, const Correction& by, std::int64_t n,
                              const float* __restrict g, const float* __restrict w,
                              float* __restrict m, float* __restrict v, float* __restrict U) {
  for (std::int64_t i = 0; i < n; ++i) {
    update_moments(rule, rule.scale * g[i], m[i], v[i]);
    U[i] = direction(rule, by, m[i], v[i]) + rule.weight_decay * w[i];
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

/// |w| / |U|, from their squares.
double trust_ratio(double w, double U) {
  return w > 0 && U > 0 ? std::sqrt(w) / std::sqrt(U) : 1.0;
}

std::unique_ptr<Kernel> lamb_numerics(const Signature& s) {
  return make_kernel([rule = Rule(s)](const Operands& t) {
    const Rule now = rule.at(t);
    if (now.scale == 0) {
      return;
    }
    const Correction by(rule, *t.input_f32(5));
    const float* g = t.input_f32(1);
    float* w = t.output_f32(0);
    float* m = t.output_f32(1);
    float* v = t.output_f32(2);
    SquareSum w_squares;
    SquareSum U_squares;
    std::array<float, kBlock> U;
    for (std::int64_t i = 0; i < rule.n; i += kBlock) {
      const std::int64_t n = std::min(kBlock, rule.n - i);
      lamb_moments(now, by, n, g + i, w + i, m + i, v + i, U.data());
      w_squares.add(w + i, n);
      U_squares.add(U.data(), n);
    }
    const double ratio = trust_ratio(w_squares.value(), U_squares.value());
    lamb_apply(rule, by, static_cast<float>(*t.input_f32(4) * ratio), m, v, w);
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
