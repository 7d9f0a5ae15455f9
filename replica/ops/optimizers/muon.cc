#include <algorithm>
#include <cmath>

#include "replica/ops/face/simd.h"
#include "replica/ops/optimizers/adam_rule.h"
#include "replica/ops/optimizers/square_sum.h"

/// Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024), with Nesterov momentum, for
/// weights of at least two dimensions other than embedding tables, and AdamW for everything else. An output layer of
/// its own counts as a weight; it is a table only if it is tied to the embedding. One learning rate serves both,
/// because the steps of matrices are scaled to the size of AdamW's (Liu et al., "Muon is scalable for LLM training",
/// arXiv:2502.16982): torch.optim.Muon with adjust_lr_fn="match_rms_adamw", apart from its bfloat16.
///
/// A weight [O, ...] is a matrix of R = O rows and C columns; the weights [E,I,H] of E stacked experts, too, form one
/// matrix of E rows:
///
///   muon_momentum(w, g, momentum* [, factor])  ->  momentum, u [R,C]
///       G = scale * g;  m = momentum * m + (1 - momentum) * G;  u = G + momentum * (m - G), divided by |u|
///   five times, as operations of the graph:  A = u u^T;  u = 3.4445 u + (-4.7750 A + 2.0315 A A) u
///   muon_matrix(w*, u, rate [, factor])        ->  w
///       w -= rate * (0.2 * sqrt(max(R, C)) * u + weight_decay * w)
///
/// The five steps bring the singular values of u near 1. The products are those of all other layers (`matmul`), in half
/// precision with half precision. The norm is an exact sum of squares, rounded once. Nothing works on shards.
///
///   muon(w*, g, m*, v*, rate, step [, factor])  ->  w, m, v      as adamw
namespace poprun::optimizers::muon {
namespace {

using adam_rule::Correction;
using adam_rule::direction;
using adam_rule::update_moments;

constexpr const char* kKind = "muon";
constexpr const char* kMomentum = "muon_momentum";
constexpr const char* kMatrix = "muon_matrix";

/// Size of the steps of matrices: the root mean square of AdamW's.
constexpr double kMatchingAdamW = 0.2;

std::optional<Shape> of_matrix(const Shape& w) {
  return w.size() >= 2 ? std::optional(w) : std::nullopt;
}

std::optional<Shape> of_vector(const Shape& w) {
  return w.size() < 2 ? std::optional(w) : std::nullopt;
}

TensorType matrix_of(const TensorType& w) {
  const std::int64_t R = w.shape.empty() ? 1 : w.shape[0];
  return {DataType::kF32, {R, R == 0 ? 0 : w.elements() / R}, Layout::kRowMajor};
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (!update_rule::fits(s, 2, 2, {"beta1", "beta2", "epsilon", "momentum"})) {
    return shape_error(kKind, s,
                       "w, g, m and v of the same f32 type, rate and step f32[], scale, weight_decay, beta1, beta2, "
                       "epsilon and momentum");
  }
  return std::vector<TensorType>(3, s.inputs[0]);
}

/// Takes AdamW's step (adamw.cc).
POPRUN_SIMD void update(const adam_rule::Rule& rule, const Correction& by, float rate, const float* __restrict g,
                        float* __restrict m, float* __restrict v, float* __restrict w) {
  for (std::int64_t i = 0; i < rule.n; ++i) {
    update_moments(rule, rule.scale * g[i], m[i], v[i]);
    w[i] -= rate * (direction(rule, by, m[i], v[i]) + rule.weight_decay * w[i]);
  }
}

Result<std::vector<TensorType>> momentum_shape(const Signature& s) {
  if (!update_rule::fits(s, 1, 0, {"momentum"}) || s.inputs[0].shape.size() < 2 ||
      s.inputs[0].layout != Layout::kRowMajor) {
    return shape_error(kMomentum, s,
                       "w, g and momentum of the same row-major f32 type of at least two dimensions, scale, "
                       "weight_decay and momentum");
  }
  return std::vector{s.inputs[0], matrix_of(s.inputs[0])};
}

POPRUN_SIMD void mix(std::int64_t n, float scale, float momentum, float rest, const float* __restrict g,
                     float* __restrict m, float* __restrict u) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float G = scale * g[i];
    m[i] = momentum * m[i] + rest * G;
    u[i] = G + momentum * (m[i] - G);
  }
}

std::unique_ptr<Kernel> momentum_numerics(const Signature& s) {
  return make_kernel([n = s.inputs[0].elements(), fixed_scale = update_rule::f32(s, "scale"),
                      momentum = update_rule::f32(s, "momentum"),
                      rest = static_cast<float>(1 - s.attributes.real("momentum"))](const Operands& t) {
    float* u = t.output_f32(1);
    const auto scale = update_rule::scale_of(fixed_scale, t, 3);
    if (!scale) {
      std::fill_n(u, n, 0.0F);
      return;
    }
    mix(n, *scale, momentum, rest, t.input_f32(1), t.output_f32(0), u);
    SquareSum sum;
    sum.add(u, n);
    const double norm = std::sqrt(sum.value());
    const auto factor = static_cast<float>(norm > 0 ? 1 / norm : 0);
    std::transform(u, u + n, u, [factor](float x) { return x * factor; });
  });
}

/// The operations are one for the scale, three for the momentum, three for u, and for the norm a square, a sum within
/// the tiles, one over the tiles, a root, an inverse and a product.
Work momentum_work(const Signature& s) {
  return update_rule::work(s, 10, 13);
}

Result<std::vector<TensorType>> matrix_shape(const Signature& s) {
  const TensorType w = s.inputs.empty() ? update_rule::kScalar : s.inputs[0];
  if (w.shape.size() < 2 || !update_rule::takes(s, {w, matrix_of(w)}, 1) || !update_rule::has(s, {})) {
    return shape_error(kMatrix, s, "w f32[R,...] of C columns, u f32[R,C], rate f32[], scale and weight_decay");
  }
  return std::vector{w};
}

POPRUN_SIMD void step(std::int64_t n, float rate, float size, float weight_decay, const float* __restrict u,
                      float* __restrict w) {
  for (std::int64_t i = 0; i < n; ++i) {
    w[i] -= rate * (size * u[i] + weight_decay * w[i]);
  }
}

std::unique_ptr<Kernel> matrix_numerics(const Signature& s) {
  const Shape& u = s.inputs[1].shape;
  const double size = kMatchingAdamW * std::sqrt(static_cast<double>(std::max(u[0], u[1])));
  return make_kernel([n = s.inputs[0].elements(), size = static_cast<float>(size),
                      weight_decay = update_rule::f32(s, "weight_decay")](const Operands& t) {
    if (update_rule::scale_of(1, t, 3)) {
      step(n, *t.input_f32(2), size, weight_decay, t.input_f32(1), t.output_f32(0));
    }
  });
}

/// The operations are one for the size, two for the decay and two for w.
Work matrix_work(const Signature& s) {
  return update_rule::work(s, 5, 5);
}

}  // namespace

Optimizer optimizer() {
  Optimizer muon = adam_rule::optimizer(
      {kKind, shape, nullptr, adam_rule::elementwise_work, adam_rule::elementwise_numerics<update>});
  muon.states = {{"momentum", /*may_be_half=*/true, of_matrix},
                 {"m", /*may_be_half=*/true, of_vector},
                 {"v", /*may_be_half=*/false, of_vector}};
  muon.hyper_parameters.push_back(
      {"momentum", "0.95", "Fraction of the previous update that the next update keeps", {{0, 1, true, false}}});
  muon.orthogonalised = {.momentum = {kMomentum, momentum_shape, nullptr, momentum_work, momentum_numerics},
                         .rule = {kMatrix, matrix_shape, nullptr, matrix_work, matrix_numerics}};
  return muon;
}

}  // namespace poprun::optimizers::muon
