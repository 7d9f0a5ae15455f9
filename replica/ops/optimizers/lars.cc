#include <cmath>

#include "replica/ops/face/simd.h"
#include "replica/ops/optimizers/optimizer.h"
#include "replica/ops/optimizers/square_sum.h"
#include "replica/ops/optimizers/update_rule.h"

/// LARS (You et al., "Large batch training of convolutional networks", arXiv:1708.03888), in the form of MLPerf's
/// ResNet and of TensorFlow's LARSOptimizer: the momentum contains the learning rate.
///
///   G = scale * g
///   local = trust * |w| / (|G| + weight_decay * |w| + epsilon), with norms over the whole tensor; 1 if a norm is 0
///   v = momentum * v + rate * local * (G + weight_decay * w)
///   w -= v
///
/// If trust is 0, as for parameters exempted by training.no-decay, local is 1. LARS consists of two operators:
///
///   lars_norms(w, g)                                  ->  squares i32[2, 42] of w and g
///   lars(w*, g, v*, squares, rate [, factor])         ->  w, v
///       momentum=. trust-coefficient=. epsilon=.
///
/// The squares are exact sums, and the norms are rounded only once, to double. Therefore, pieces of a tensor give the
/// same norms as the full tensor.
namespace poprun::optimizers::lars {
namespace {

constexpr const char* kKind = "lars";
constexpr const char* kNorms = "lars_norms";
constexpr const char* kTrust = "trust-coefficient";

const TensorType kSquares{DataType::kI32, {2, SquareSum::kLimbs}, Layout::kRowMajor};

Result<std::vector<TensorType>> norms_shape(const Signature& s) {
  if (s.inputs.size() != 2 || s.inputs[0].data != DataType::kF32 || s.inputs[1] != s.inputs[0]) {
    return shape_error(kNorms, s, "w and g of the same f32 type");
  }
  return std::vector{kSquares};
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  const TensorType w = s.inputs.empty() ? update_rule::kScalar : s.inputs[0];
  if (!update_rule::takes(s, {w, w, w, kSquares}, 1) || !update_rule::has(s, {"momentum", kTrust, "epsilon"})) {
    return shape_error(kKind, s,
                       "w, g and v of the same f32 type, squares i32[2, 42], rate f32[], scale, weight_decay, "
                       "momentum, trust-coefficient and epsilon");
  }
  return std::vector{w, w};
}

std::unique_ptr<Kernel> norms_numerics(const Signature& s) {
  return make_kernel([n = s.inputs[0].elements()](const Operands& t) {
    auto* squares = reinterpret_cast<std::int32_t*>(t.outputs[0]);  // NOLINT: an i32 tensor.
    for (std::size_t i = 0; i < 2; ++i) {
      SquareSum sum;
      sum.add(t.input_f32(i), n);
      sum.store(squares + static_cast<std::ptrdiff_t>(i) * SquareSum::kLimbs);
    }
  });
}

struct Rule {
  std::int64_t n;
  float scale;
  float weight_decay;
  float momentum;
  double exact_weight_decay;
  double trust;
  double epsilon;

  explicit Rule(const Signature& s)
      : n(s.inputs[0].elements()),
        scale(update_rule::f32(s, "scale")),
        weight_decay(update_rule::f32(s, "weight_decay")),
        momentum(update_rule::f32(s, "momentum")),
        exact_weight_decay(s.attributes.real("weight_decay")),
        trust(s.attributes.real(kTrust)),
        epsilon(s.attributes.real("epsilon")) {}
};

/// Returns the ratio of the tensor's rate to the learning rate.
double local_rate(const Rule& rule, const std::byte* squares) {
  const auto* limbs = reinterpret_cast<const std::int32_t*>(squares);  // NOLINT: an i32 tensor.
  const double w = norm_of(limbs);
  const double G = static_cast<double>(rule.scale) * norm_of(limbs + SquareSum::kLimbs);
  return rule.trust > 0 && w > 0 && G > 0 ? rule.trust * w / (G + rule.exact_weight_decay * w + rule.epsilon) : 1.0;
}

/// Updates v and w. `rate` is the learning rate times the tensor's local rate.
POPRUN_SIMD void update(const Rule& rule, float rate, const float* __restrict g, float* __restrict v,
                        float* __restrict w) {
  for (std::int64_t i = 0; i < rule.n; ++i) {
    v[i] = rule.momentum * v[i] + rate * (rule.scale * g[i] + rule.weight_decay * w[i]);
    w[i] -= v[i];
  }
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([rule = Rule(s)](const Operands& t) {
    if (const auto now = update_rule::for_run(rule, t, 5)) {
      const auto rate = static_cast<float>(*t.input_f32(4) * local_rate(*now, t.inputs[3]));
      update(*now, rate, t.input_f32(1), t.output_f32(1), t.output_f32(0));
    }
  });
}

/// Counts four flops per element and, for each of the two norms, these operations: a square, a sum within the tiles,
/// one over the tiles, and a root, as in LARSOptimizer of TensorFlow 1.15. The count models an IPU that adds in float,
/// without the exact sums.
Work norms_work(const Signature& s) {
  return update_rule::work(s, 4, 8);
}

/// The operations of LARSOptimizer are one for the scale, two comparisons of norms with 0, four and two selections for
/// their ratio, one for the rate, two for the weight decay, one for the product of both, two for v and two for w.
Work work(const Signature& s) {
  return update_rule::work(s, 7, 17);
}

}  // namespace

Optimizer optimizer() {
  return {.rule = on_shards({kKind, shape, nullptr, work, numerics},
                            {.inputs = 3, .outputs = 2}),  // Inputs w, g and v; outputs w and v.
          .states = {{"momentum"}},
          .hyper_parameters =
              {{"momentum", "0.9", "Fraction of the previous update that the next update keeps", {{0, 1, true, false}}},
               {kTrust,
                "0.001",
                "Size of an update relative to the weights that it changes, at a learning rate of 1",
                {{0, 1, false}}},
               {"epsilon", "0", "Added to the denominator of the update", {{0, 1}}}},
          .norms = on_shards({kNorms, norms_shape, nullptr, norms_work, norms_numerics},
                             {.inputs = 2, .outputs = 0}),  // Inputs w and g.
          .adaptation = kTrust};
}

}  // namespace poprun::optimizers::lars
