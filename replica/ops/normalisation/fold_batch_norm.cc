#include <cmath>

#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"

/// fold_batch_norm(w [O,...], b [O], gamma [O], mean [O], variance [O], bias [O]) eps=.
///     ->  w and b, in place;  bias is optional
///
///   s = gamma / sqrt(variance + eps)    w[o] = s[o] w[o]    b = b + (bias - mean) s
///
/// A convolution with the new w and b gives the same result as a convolution with the old w and bias that is followed
/// by batch normalisation with gamma, the old b as its shift, and these running statistics:
///
///   (w x + bias - mean) s + b  =  (s w) x + (b + (bias - mean) s)
///
/// s and the new b are computed in double and rounded once. There is no gradient.
namespace poprun::ops::fold_batch_norm {
namespace {

Result<std::vector<TensorType>> shape(const Signature& s) {
  const std::size_t count = s.inputs.size();
  bool fits = (count == 5 || count == 6) && s.attributes.has("eps") && s.attributes.real("eps") > 0 &&
              s.inputs[0].data == DataType::kF32 && s.inputs[0].layout == Layout::kRowMajor &&
              !s.inputs[0].shape.empty();
  for (std::size_t i = 1; fits && i < count; ++i) {
    fits = s.inputs[i] == TensorType{DataType::kF32, {s.inputs[0].shape[0]}, {}};
  }
  if (!fits) {
    return shape_error(kinds::kFoldBatchNorm, s,
                       "w f32[O,...]; b, gamma, mean, variance and optionally bias f32[O]; eps > 0");
  }
  return std::vector{s.inputs[0], s.inputs[1]};
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const std::int64_t O = s.inputs[0].shape[0];
  return make_kernel([O, row = s.inputs[0].elements() / O, eps = s.attributes.real("eps"),
                      has_bias = s.inputs.size() == 6](const Operands& t) {
    for (std::int64_t o = 0; o < O; ++o) {
      const double scale =
          static_cast<double>(t.input_f32(2)[o]) / std::sqrt(static_cast<double>(t.input_f32(4)[o]) + eps);
      const double bias = has_bias ? static_cast<double>(t.input_f32(5)[o]) : 0.0;
      const double centre = bias - static_cast<double>(t.input_f32(3)[o]);
      float* w = t.output_f32(0) + o * row;
      for (std::int64_t i = 0; i < row; ++i) {
        w[i] = static_cast<float>(static_cast<double>(w[i]) * scale);
      }
      float& b = t.output_f32(1)[o];
      b = static_cast<float>(static_cast<double>(b) + centre * scale);
    }
  });
}

/// Counts a product per weight, and a square root, a division, sums and products per channel.
Work work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = s.inputs[0].elements() + 16 * s.inputs[1].elements();
  return work;
}

}  // namespace

std::vector<Operator> operators() {
  return {{kinds::kFoldBatchNorm, shape, nullptr, work, numerics}};
}

}  // namespace poprun::ops::fold_batch_norm
