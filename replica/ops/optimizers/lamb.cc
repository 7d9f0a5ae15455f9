#include <algorithm>
#include <array>
#include <cmath>

#include "replica/ops/face/simd.h"
#include "replica/ops/optimizers/adam_rule.h"
#include "replica/ops/optimizers/square_sum.h"

/// LAMB (You et al., "Large batch optimization for deep learning", arXiv:1904.00962, algorithm 2 with phi(z) = z).
///
///   U = u + weight_decay * w
///   w -= rate * |w| / |U| * U, with norms over the whole tensor; |w| / |U| is 1 if either norm is 0
///
/// LAMB consists of two operators:
///
///   lamb_moments(w, g, m*, v*, step [, factor])      ->  m, v, squares i32[2, 42] of w and U
///   lamb(w*, m, v, squares, rate, step [, factor])   ->  w
///
/// U is computed in float32, element by element. The squares are exact sums, and the norms are rounded only once, to
/// double. Therefore, pieces of a tensor give the same norms as the full tensor.
namespace poprun::optimizers::lamb {
namespace {

using adam_rule::Correction;
using adam_rule::direction;
using adam_rule::Rule;
using adam_rule::update_moments;

constexpr const char* kKind = "lamb";
constexpr const char* kMoments = "lamb_moments";

constexpr std::int64_t kBlock = 4096;  ///< Number of elements whose U is buffered at a time for its norm.

const TensorType kSquares{DataType::kI32, {2, SquareSum::kLimbs}, Layout::kRowMajor};

Result<std::vector<TensorType>> moments_shape(const Signature& s) {
  if (!update_rule::fits(s, 2, 1, {"beta1", "beta2", "epsilon"})) {
    return shape_error(kMoments, s,
                       "w, g, m and v of the same f32 type, step f32[], scale, weight_decay, beta1, "
                       "beta2 and epsilon");
  }
  return std::vector{s.inputs[0], s.inputs[0], kSquares};
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  const TensorType w = s.inputs.empty() ? update_rule::kScalar : s.inputs[0];
  if (!update_rule::takes(s, {w, w, w, kSquares}, 2) || !update_rule::has(s, {"beta1", "beta2", "epsilon"})) {
    return shape_error(kKind, s,
                       "w, m and v of the same f32 type, squares i32[2, 42], rate and step f32[], scale, "
                       "weight_decay, beta1, beta2 and epsilon");
  }
  return std::vector{w};
}

/// Updates the moments of `n` elements and computes U for them.
POPRUN_SIMD void update_block(const Rule& rule, const Correction& by, std::int64_t n, const float* __restrict g,
                              const float* __restrict w, float* __restrict m, float* __restrict v,
                              float* __restrict U) {
  for (std::int64_t i = 0; i < n; ++i) {
    update_moments(rule, rule.scale * g[i], m[i], v[i]);
    U[i] = direction(rule, by, m[i], v[i]) + rule.weight_decay * w[i];
  }
}

std::unique_ptr<Kernel> moments_numerics(const Signature& s) {
  return make_kernel([rule = Rule(s)](const Operands& t) {
    SquareSum w_squares;
    SquareSum U_squares;
    if (const auto now = update_rule::for_run(rule, t, 5)) {
      const Correction by(rule, *t.input_f32(4));
      const float* w = t.input_f32(0);
      const float* g = t.input_f32(1);
      float* m = t.output_f32(0);
      float* v = t.output_f32(1);
      std::array<float, kBlock> U;
      for (std::int64_t i = 0; i < rule.n; i += kBlock) {
        const std::int64_t n = std::min(kBlock, rule.n - i);
        update_block(*now, by, n, g + i, w + i, m + i, v + i, U.data());
        w_squares.add(w + i, n);
        U_squares.add(U.data(), n);
      }
    }
    auto* squares = reinterpret_cast<std::int32_t*>(t.outputs[2]);  // NOLINT: an i32 tensor.
    w_squares.store(squares);
    U_squares.store(squares + SquareSum::kLimbs);
  });
}

/// Updates w. `rate` is the learning rate times the tensor's trust ratio.
POPRUN_SIMD void apply(const Rule& rule, const Correction& by, float rate, const float* __restrict m,
                       const float* __restrict v, float* __restrict w) {
  for (std::int64_t i = 0; i < rule.n; ++i) {
    w[i] -= rate * (direction(rule, by, m[i], v[i]) + rule.weight_decay * w[i]);
  }
}

/// Returns |w| / |U|, or 1 if either norm is 0.
double trust_ratio(const std::byte* squares) {
  const auto* limbs = reinterpret_cast<const std::int32_t*>(squares);  // NOLINT: an i32 tensor.
  const double w = norm_of(limbs);
  const double U = norm_of(limbs + SquareSum::kLimbs);
  return w > 0 && U > 0 ? w / U : 1.0;
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([rule = Rule(s)](const Operands& t) {
    if (!update_rule::for_run(rule, t, 6)) {
      return;
    }
    const auto rate = static_cast<float>(*t.input_f32(4) * trust_ratio(t.inputs[3]));
    apply(rule, Correction(rule, *t.input_f32(5)), rate, t.input_f32(1), t.input_f32(2), t.output_f32(0));
  });
}

/// Counts 18 flops per element, where a square root or a division counts as one, and these operations: one for the
/// scale, three for m, four for v, six for the corrections of both, three for U, two for the weight decay, and for each
/// of the two norms a square, a sum within the tiles, one over the tiles, and a root. The count models an IPU that adds
/// in float, without the exact sums.
Work moments_work(const Signature& s) {
  return update_rule::work(s, 18, 27);
}

/// Counts the recomputation of U from m and v. A framework keeps U, so its operations are only those of the ratio of
/// the norms (five) and of w (three).
Work work(const Signature& s) {
  return update_rule::work(s, 9, 8);
}

}  // namespace

Optimizer optimizer() {
  Optimizer lamb = adam_rule::optimizer(
      on_shards({kKind, shape, nullptr, work, numerics}, {.inputs = 3, .outputs = 1}));  // Inputs w, m and v; output w.
  lamb.moments = on_shards({kMoments, moments_shape, nullptr, moments_work, moments_numerics},
                           {.inputs = 4, .outputs = 2});  // Inputs w, g, m and v; outputs m and v, not the squares.
  return lamb;
}

}  // namespace poprun::optimizers::lamb
