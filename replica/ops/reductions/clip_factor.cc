#include <algorithm>
#include <cmath>

#include "replica/ops/optimizers/square_sum.h"
#include "replica/ops/optimizers/update_rule.h"

/// The factor by which all gradients of a step are multiplied, and the sums from which it is computed.
///
///   sum_of_squares(g f32[...])  ->  sum i32[42], exact: the limbs (digits) of optimizers/square_sum.h
///   clip_factor(sum0, sum1, ... i32[42])  scale=. max_norm=.  ->  factor f32[]
///   loss_scale_factor(sum0, sum1, ..., loss_scale f32[])  scale=. max_norm=. (0: no limit)  ->  factor f32[]
///
/// factor = min(1, max_norm / (norm + 1e-6)), norm = scale * |all elements of all g|: the rule of
/// torch.nn.utils.clip_grad_norm_. loss_scale_factor divides both norm and factor by loss_scale, and returns kSkip if
/// an element is infinite or NaN. The sums are exact and rounded once, to double.
namespace poprun::ops::clip_factor {
namespace {

const TensorType kSum{DataType::kI32, {SquareSum::kLimbs}, Layout::kRowMajor};

Result<std::vector<TensorType>> sum_shape(const Signature& s) {
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kF32) {
    return shape_error("sum_of_squares", s, "one f32 tensor");
  }
  return std::vector{kSum};
}

/// Returns whether `sums` > 0, the first `sums` inputs are sums of squares, and all attributes are given.
bool fits(const Signature& s, std::size_t sums) {
  return sums > 0 && s.attributes.has("scale") && s.attributes.has("max_norm") &&
         std::all_of(s.inputs.begin(), s.inputs.begin() + static_cast<std::ptrdiff_t>(sums),
                     [](const TensorType& t) { return t == kSum; });
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (!fits(s, s.inputs.size()) || !(s.attributes.real("max_norm") > 0)) {
    return shape_error("clip_factor", s, "at least one sum of squares i32[42], scale and max_norm > 0");
  }
  return std::vector{update_rule::kScalar};
}

Result<std::vector<TensorType>> loss_scale_shape(const Signature& s) {
  if (s.inputs.empty() || !fits(s, s.inputs.size() - 1) || s.inputs.back() != update_rule::kScalar ||
      s.attributes.real("max_norm") < 0) {
    return shape_error("loss_scale_factor", s,
                       "at least one sum of squares i32[42], loss_scale f32[], scale and "
                       "max_norm >= 0");
  }
  return std::vector{update_rule::kScalar};
}

std::int32_t* limbs(std::byte* bytes) {
  return reinterpret_cast<std::int32_t*>(bytes);  // NOLINT: bytes of an i32 tensor.
}

std::unique_ptr<Kernel> sum_numerics(const Signature& s) {
  return make_kernel([n = s.inputs[0].elements()](const Operands& t) {
    SquareSum sum;
    sum.add(t.input_f32(0), n);
    sum.store(limbs(t.outputs[0]));
  });
}

/// Returns the norm of all gradients, taken as one vector, from the first `count` inputs.
double norm_of(std::size_t count, const Operands& t) {
  SquareSum sum;
  for (std::size_t i = 0; i < count; ++i) {
    sum.add(reinterpret_cast<const std::int32_t*>(t.inputs[i]));  // NOLINT: bytes of an i32 tensor.
  }
  return std::sqrt(sum.value());
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([count = s.inputs.size(), scale = s.attributes.real("scale"),
                      max_norm = s.attributes.real("max_norm")](const Operands& t) {
    const double factor = max_norm / (scale * norm_of(count, t) + 1e-6);
    *t.output_f32(0) = factor < 1 ? static_cast<float>(factor) : 1.0F;
  });
}

std::unique_ptr<Kernel> loss_scale_numerics(const Signature& s) {
  return make_kernel([count = s.inputs.size() - 1, scale = s.attributes.real("scale"),
                      max_norm = s.attributes.real("max_norm")](const Operands& t) {
    const auto unscale = 1 / static_cast<double>(*t.input_f32(count));
    const double norm = scale * unscale * norm_of(count, t);
    const double clip = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
    *t.output_f32(0) = std::isfinite(norm) ? static_cast<float>(clip * unscale) : update_rule::kSkip;
  });
}

/// Counts one sum per tile, then one over all tiles. This models an IPU that adds in float, without the exact sums.
Work sum_work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = 2 * s.inputs[0].elements();
  work.compute_sets = 2;
  return work;
}

Work factor_work(const Signature& s) {
  return elementwise_work(s, 8);
}

}  // namespace

std::vector<Operator> operators() {
  return {on_shards({"sum_of_squares", sum_shape, nullptr, sum_work, sum_numerics}, {.inputs = 1, .outputs = 0}),
          {"clip_factor", shape, nullptr, factor_work, numerics},
          {"loss_scale_factor", loss_scale_shape, nullptr, factor_work, loss_scale_numerics}};
}

}  // namespace poprun::ops::clip_factor
