#include <algorithm>
#include <cmath>

#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/simd.h"

/// Constants and in-place sums.
///
///   fill() shape=[..] value=.  ->  f32, row-major, every element `value`
///   constant() shape=[..] values=[..]  ->  f32, row-major, with these elements
///   attention_mask(kept i32[B,T])  ->  f32[B,1,1,T], 0 if `kept` is not zero, else -16,384; added to
///                                  attention scores [B,h,T,T], the mask hides tokens that are not kept
///   causal_mask() size=T   ->  f32[T,T], 0 if column <= row, else -16,384; added to scores, it hides later tokens
///   accumulate(sum, x)     ->  sum, updated in place to sum + x or, with mean=1, to the mean over the
///                              step's micro-batches so far, sum + (x - sum) / their number
///   accumulate_metrics(total f32[3,3], loss, correct, count)  ->  total, updated in place: adds loss * count, correct
///                      and count to rows 0, 1 and 2. A row stores one number as the sum of a multiple of 4096, a whole
///                      number up to 2048 and a fraction, so counts up to 2^36 are exact, even over 4096 replicas
///
/// Compared with the exponential of a visible score, exp(-16,384 + score) is 0. The sum of two masks and a score is
/// finite even in half precision, where the lowest number is -65,504. If a token cannot see any token, the tokens
/// hidden only by the attention mask are weighted by their scores, as with the -10,000 of BERT's first implementation.
namespace poprun::ops::arithmetic {
namespace {

Result<std::vector<TensorType>> same_types(const Signature& s) {
  if (s.inputs.size() != 2 || s.inputs[0] != s.inputs[1] || s.inputs[0].data != DataType::kF32) {
    return shape_error(kinds::kAccumulate, s, "two f32 tensors of the same type");
  }
  return std::vector{s.inputs[0]};
}

POPRUN_SIMD void sum(const float* a, const float* b, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = a[i] + b[i];
  }
}

POPRUN_SIMD void approach(const float* mean, const float* x, float share, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = mean[i] + (x[i] - mean[i]) * share;
  }
}

std::unique_ptr<Kernel> sum_numerics(const Signature& s) {
  if (is_set(s.attributes, "mean")) {
    return make_kernel([n = s.inputs[0].elements()](const Operands& t) {
      const float share = 1.0F / static_cast<float>(t.moment->micro_batch + 1);
      approach(t.input_f32(0), t.input_f32(1), share, t.output_f32(0), n);
    });
  }
  return make_kernel(
      [n = s.inputs[0].elements()](const Operands& t) { sum(t.input_f32(0), t.input_f32(1), t.output_f32(0), n); });
}

Work one_flop(const Signature& s) {
  return elementwise_work(s, 1);
}

Work sum_work(const Signature& s) {
  return elementwise_work(s, is_set(s.attributes, "mean") ? 3 : 1);
}

Result<std::vector<TensorType>> fill_shape(const Signature& s) {
  if (!s.inputs.empty() || !s.attributes.has("shape") || !s.attributes.has("value")) {
    return shape_error(kinds::kFill, s, "shape=[..] and value, and takes no input");
  }
  return std::vector{TensorType{DataType::kF32, s.attributes.integers("shape"), {}}};
}

std::unique_ptr<Kernel> fill_numerics(const Signature& s) {
  return make_kernel([n = s.outputs[0].elements(), value = static_cast<float>(s.attributes.real("value"))](
                         const Operands& t) { std::fill_n(t.output_f32(0), n, value); });
}

Result<std::vector<TensorType>> constant_shape(const Signature& s) {
  if (s.inputs.empty() && s.attributes.has("shape") && s.attributes.has("values")) {
    const TensorType type{DataType::kF32, s.attributes.integers("shape"), {}};
    if (type.elements() == static_cast<std::int64_t>(s.attributes.reals("values").size())) {
      return std::vector{type};
    }
  }
  return shape_error("constant", s, "shape=[..] and values=[..], one per element, and takes no input");
}

std::unique_ptr<Kernel> constant_numerics(const Signature& s) {
  const std::vector<double>& exact = s.attributes.reals("values");
  return make_kernel([values = std::vector<float>(exact.begin(), exact.end())](const Operands& t) {
    std::ranges::copy(values, t.output_f32(0));
  });
}

Work fill_work(const Signature& s) {
  return elementwise_work(s, 0);
}

constexpr float kUnseen = -16384.0F;

Result<std::vector<TensorType>> causal_mask_shape(const Signature& s) {
  if (!s.inputs.empty() || !s.attributes.has("size") || s.attributes.integer("size") < 1) {
    return shape_error("causal_mask", s, "size >= 1, and takes no input");
  }
  const std::int64_t T = s.attributes.integer("size");
  return std::vector{TensorType{DataType::kF32, {T, T}, {}}};
}

std::unique_ptr<Kernel> causal_mask_numerics(const Signature& s) {
  return make_kernel([T = s.attributes.integer("size")](const Operands& t) {
    for (std::int64_t row = 0; row < T; ++row) {
      float* y = t.output_f32(0) + row * T;
      std::fill_n(y, row + 1, 0.0F);
      std::fill(y + row + 1, y + T, kUnseen);
    }
  });
}

Result<std::vector<TensorType>> attention_mask_shape(const Signature& s) {
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kI32 || s.inputs[0].layout != Layout::kRowMajor ||
      s.inputs[0].shape.size() != 2) {
    return shape_error("attention_mask", s, "i32[B,T]");
  }
  const Shape& kept = s.inputs[0].shape;
  return std::vector{TensorType{DataType::kF32, {kept[0], 1, 1, kept[1]}, {}}};
}

std::unique_ptr<Kernel> attention_mask_numerics(const Signature& s) {
  return make_kernel([n = s.inputs[0].elements()](const Operands& t) {
    const auto* kept = reinterpret_cast<const std::int32_t*>(t.inputs[0]);  // NOLINT: i32 tensor.
    std::transform(kept, kept + n, t.output_f32(0), [](std::int32_t one) { return one != 0 ? 0.0F : kUnseen; });
  });
}

const TensorType kScalar{DataType::kF32, {}, Layout::kRowMajor};

Result<std::vector<TensorType>> metrics_shape(const Signature& s) {
  if (s.inputs.size() != 4 || s.inputs[0] != TensorType{DataType::kF32, {3, 3}, {}} || s.inputs[1] != kScalar ||
      s.inputs[2] != kScalar || s.inputs[3] != kScalar) {
    return shape_error(kinds::kAccumulateMetrics, s, "total f32[3,3], loss, correct and count f32[]");
  }
  return std::vector{s.inputs[0]};
}

/// Adds `value` to a number that is stored in three parts.
void add_to_parts(double value, float* parts) {
  constexpr double kCoarse = 4096;
  const double sum =
      static_cast<double>(parts[0]) + static_cast<double>(parts[1]) + static_cast<double>(parts[2]) + value;
  const double coarse = std::isfinite(sum) ? std::round(sum / kCoarse) * kCoarse : sum;
  const double rest = std::isfinite(sum) ? sum - static_cast<double>(static_cast<float>(coarse)) : 0;
  parts[0] = static_cast<float>(coarse);
  parts[1] = static_cast<float>(std::round(rest));
  parts[2] = static_cast<float>(rest - std::round(rest));
}

std::unique_ptr<Kernel> metrics_numerics(const Signature& /*s*/) {
  return make_kernel([](const Operands& t) {
    const auto count = static_cast<double>(*t.input_f32(3));
    add_to_parts(static_cast<double>(*t.input_f32(1)) * count, t.output_f32(0));
    add_to_parts(static_cast<double>(*t.input_f32(2)), t.output_f32(0) + 3);
    add_to_parts(count, t.output_f32(0) + 6);
  });
}

}  // namespace

std::vector<Operator> operators() {
  return {{.kind = kinds::kAccumulate,
           .shape = same_types,
           .work = sum_work,
           .numerics = sum_numerics,
           .reads_moment = true,
           .on_shards = {.inputs = 2, .outputs = 1}},
          {"attention_mask", attention_mask_shape, nullptr, fill_work, attention_mask_numerics},
          {"causal_mask", causal_mask_shape, nullptr, fill_work, causal_mask_numerics},
          {"constant", constant_shape, nullptr, fill_work, constant_numerics},
          {kinds::kFill, fill_shape, nullptr, fill_work, fill_numerics},
          {kinds::kAccumulateMetrics, metrics_shape, nullptr, one_flop, metrics_numerics}};
}

}  // namespace poprun::ops::arithmetic
