#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "replica/ops/face/operator.h"
#include "replica/ops/face/simd.h"

/// Root mean square normalisation (Zhang and Sennrich, 2019) over the last dimension: layer normalisation without mean
/// and bias, as in Llama and T5.
///
///   B  rows: all dimensions but the last, flattened    C  features
///
///   rms_norm(x [...,C], w [C]) epsilon=.  ->  y, square [B]
///
///   y = r x w, with r = 1 / sqrt(square + epsilon), where square is the mean of x^2 over the row
///
/// Sums over a row are computed in double in a fixed order, and rounded once.
namespace poprun::ops::rms_norm {
namespace {

constexpr const char* kRmsNorm = "rms_norm";
constexpr const char* kRmsNormGradient = "rms_norm_gradient";

/// Number of interleaved partial sums. It is fixed, so that a sum is the same on every CPU.
constexpr std::int64_t kLanes = 16;

TensorType per_row(const TensorType& x) {
  return {DataType::kF32, {x.elements() / x.shape.back()}, {}};
}

bool fits(const Signature& s, std::size_t count) {
  if (s.inputs.size() != count || !s.attributes.has("epsilon") || !(s.attributes.real("epsilon") > 0)) {
    return false;
  }
  const TensorType& x = s.inputs[0];
  return x.data == DataType::kF32 && !x.shape.empty() && x.layout == Layout::kRowMajor && x.shape.back() > 0 &&
         s.inputs[1] == TensorType{DataType::kF32, {x.shape.back()}, {}};
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (!fits(s, 2)) {
    return shape_error(kRmsNorm, s, "x f32[...,C], w f32[C] and epsilon > 0");
  }
  return std::vector{s.inputs[0], per_row(s.inputs[0])};
}

double total(const std::array<double, kLanes>& lanes) {
  double sum = 0;
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

/// Returns the sum of x[c]^2.
POPRUN_SIMD double square_sum(const float* x, std::int64_t C) {
  std::array<double, kLanes> lanes{};
  std::int64_t c = 0;
  for (; c + kLanes <= C; c += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) {
      const auto v = static_cast<double>(x[c + l]);
      lanes[static_cast<std::size_t>(l)] += v * v;
    }
  }
  double sum = total(lanes);
  for (; c < C; ++c) {
    sum += static_cast<double>(x[c]) * static_cast<double>(x[c]);
  }
  return sum;
}

/// Returns the sum of dy[c] w[c] x[c].
POPRUN_SIMD double weighted_sum(const float* dy, const float* w, const float* x, std::int64_t C) {
  std::array<double, kLanes> lanes{};
  std::int64_t c = 0;
  for (; c + kLanes <= C; c += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) {
      lanes[static_cast<std::size_t>(l)] +=
          static_cast<double>(dy[c + l]) * static_cast<double>(w[c + l]) * static_cast<double>(x[c + l]);
    }
  }
  double sum = total(lanes);
  for (; c < C; ++c) {
    sum += static_cast<double>(dy[c]) * static_cast<double>(w[c]) * static_cast<double>(x[c]);
  }
  return sum;
}

POPRUN_SIMD void scale_row(const float* __restrict x, const float* __restrict w, float r, float* __restrict y,
                           std::int64_t C) {
  for (std::int64_t c = 0; c < C; ++c) {
    y[c] = w[c] * (x[c] * r);
  }
}

/// Sets dx = r (dy w - s x), and adds dy x r to dw.
POPRUN_SIMD void gradient_row(const float* __restrict x, const float* __restrict w, const float* __restrict dy, float r,
                              float s, float* __restrict dx, float* __restrict dw, std::int64_t C) {
  for (std::int64_t c = 0; c < C; ++c) {
    dx[c] = r * (dy[c] * w[c] - s * x[c]);
    dw[c] += dy[c] * (x[c] * r);
  }
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const TensorType& x = s.inputs[0];
  return make_kernel([B = x.elements() / x.shape.back(), C = x.shape.back(),
                      epsilon = s.attributes.real("epsilon")](const Operands& t) {
    for (std::int64_t b = 0; b < B; ++b) {
      const float* row = t.input_f32(0) + b * C;
      const double square = square_sum(row, C) / static_cast<double>(C);
      t.output_f32(1)[b] = static_cast<float>(square);
      scale_row(row, t.input_f32(1), static_cast<float>(1 / std::sqrt(square + epsilon)), t.output_f32(0) + b * C, C);
    }
  });
}

Work work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = 4 * s.inputs[0].elements();
  work.compute_sets = 2;  // They compute sums of squares, and results.
  return work;
}

/// rms_norm_gradient(x, w, square, dy) epsilon=.  ->  dx, dw
Result<std::vector<TensorType>> gradient_shape(const Signature& s) {
  if (!fits(s, 4) || s.inputs[2] != per_row(s.inputs[0]) || s.inputs[3] != s.inputs[0]) {
    return shape_error(kRmsNormGradient, s, "x, w, square, dy and epsilon > 0");
  }
  return std::vector{s.inputs[0], s.inputs[1]};
}

std::unique_ptr<Kernel> gradient_numerics(const Signature& s) {
  const TensorType& x = s.inputs[0];
  return make_kernel([B = x.elements() / x.shape.back(), C = x.shape.back(),
                      epsilon = s.attributes.real("epsilon")](const Operands& t) {
    std::fill_n(t.output_f32(1), C, 0.0F);
    for (std::int64_t b = 0; b < B; ++b) {
      const float* row = t.input_f32(0) + b * C;
      const float* dy = t.input_f32(3) + b * C;
      const double variance = static_cast<double>(t.input_f32(2)[b]) + epsilon;
      const double along = weighted_sum(dy, t.input_f32(1), row, C) / (variance * static_cast<double>(C));
      gradient_row(row, t.input_f32(1), dy, static_cast<float>(1 / std::sqrt(variance)), static_cast<float>(along),
                   t.output_f32(0) + b * C, t.output_f32(1), C);
    }
  });
}

Work gradient_work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = 9 * s.inputs[0].elements();
  work.compute_sets = 3;
  return work;
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  const auto gradients =
      d.add(kRmsNormGradient, {op.inputs[0], op.inputs[1], op.outputs[1], d.output_gradient(0)}, op.attributes, {0, 1});
  for (std::size_t input = 0; input < gradients.size(); ++input) {
    d.set_input_gradient(input, gradients[input]);
  }
}

}  // namespace

std::vector<Operator> operators() {
  return {{.kind = kRmsNorm,
           .shape = shape,
           .gradient = gradient,
           .work = work,
           .numerics = numerics,
           .statistics_from = 1},
          {.kind = kRmsNormGradient, .shape = gradient_shape, .work = gradient_work, .numerics = gradient_numerics}};
}

}  // namespace poprun::ops::rms_norm
