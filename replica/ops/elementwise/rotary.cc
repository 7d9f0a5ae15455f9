#include <cstdint>

#include "replica/ops/face/operator.h"
#include "replica/ops/face/simd.h"

/// Rotary position embedding (Su et al., 2021) of the heads of attention. Elements i and i + d/2 of a head are a point
/// in the plane, which is rotated by an angle that depends on the position ("rotate-half", as in Hugging Face).
///
///   T  positions    d  features of a head
///
///   rotary(x [...,T,d], cosine [T,d/2], sine [T,d/2]) reversed=0|1  ->  y of x's type
///
///   y[i] = x[i] cosine[i] - x[i + d/2] sine[i],   y[i + d/2] = x[i + d/2] cosine[i] + x[i] sine[i]
///
/// With reversed=1 (default 0), it rotates by the opposite angle. This is the gradient. No gradient passes to the
/// tables.
namespace poprun::ops::rotary {
namespace {

constexpr const char* kRotary = "rotary";
constexpr const char* kReversed = "reversed";

bool is_reversed(const Attributes& attributes) {
  return attributes.has(kReversed) && attributes.integer(kReversed) != 0;
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  const auto bad = [&] {
    return shape_error(kRotary, s, "x f32[...,T,d] with d even, and cosine and sine f32[T,d/2], all row-major");
  };
  if (s.inputs.size() != 3 || s.inputs[0].data != DataType::kF32 || s.inputs[0].layout != Layout::kRowMajor ||
      s.inputs[0].shape.size() < 2 || s.inputs[0].shape.back() % 2 != 0) {
    return bad();
  }
  const Shape& x = s.inputs[0].shape;
  const TensorType table{DataType::kF32, {x[x.size() - 2], x.back() / 2}, {}};
  if (s.inputs[1] != table || s.inputs[2] != table) {
    return bad();
  }
  return std::vector{s.inputs[0]};
}

/// Rotates one head at one position. y may be x.
POPRUN_SIMD void rotate(const float* x, const float* cosine, const float* sine, float sign, float* y,
                        std::int64_t half) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    const float s = sign * sine[i];
    y[i] = a * cosine[i] - b * s;
    y[i + half] = b * cosine[i] + a * s;
  }
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const std::int64_t T = s.inputs[1].shape[0];
  const std::int64_t half = s.inputs[1].shape[1];
  const std::int64_t rows = half == 0 ? 0 : s.inputs[0].elements() / (2 * half);
  return make_kernel([T, half, rows, sign = is_reversed(s.attributes) ? -1.0F : 1.0F](const Operands& t) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t table = row % T * half;
      rotate(t.input_f32(0) + row * 2 * half, t.input_f32(1) + table, t.input_f32(2) + table, sign,
             t.output_f32(0) + row * 2 * half, half);
    }
  });
}

Work work(const Signature& s) {
  return elementwise_work(s, 3);
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  if (d.wants(0)) {
    Attributes attributes;
    attributes.set(kReversed, std::int64_t{is_reversed(op.attributes) ? 0 : 1});
    d.set_input_gradient(0, d.add(kRotary, {d.output_gradient(0), op.inputs[1], op.inputs[2]}, attributes, {0})[0]);
  }
}

}  // namespace

std::vector<Operator> operators() {
  return {in_place({kRotary, shape, gradient, work, numerics}, {0})};
}

}  // namespace poprun::ops::rotary
