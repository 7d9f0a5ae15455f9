#include <cmath>

#include "replica/ops/broadcast/broadcast.h"
#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/simd.h"

/// Elementwise arithmetic on two tensors.
///
///   add(a, b)  ->  a + b        sub(a, b)  ->  a - b
///   mul(a, b)  ->  a * b        div(a, b)  ->  a / b
///   max(a, b), min(a, b)        the larger, the smaller; NaN if either is NaN
///   pow(a, b)  ->  a^b          prelu(a, b)  ->  a > 0 ? a : a b
///   mod(a, b), fmod(a, b)       the exact remainder of a / b, with the sign of b (Python's %) or of a (C's fmod)
///
/// Shapes broadcast as in NumPy. Layouts can be mixed, and the result is channels-last if an operand is. Gradients are
/// summed over repeated dimensions. If a = b, the gradients of max and min go to a. KIND_by_0 and KIND_by_1 are the
/// derivatives of max, min, pow and prelu with respect to a and b. For a^b, the former is 0 if b = 0, and the latter is
/// 0 if a = 0 and b >= 0. A remainder is a - n b with an integer n, so its derivative with respect to b is -n.
namespace poprun::ops::elementwise {
namespace {

struct Add {
  static float of(float a, float b) { return a + b; }
};
struct Subtract {
  static float of(float a, float b) { return a - b; }
};
struct Multiply {
  static float of(float a, float b) { return a * b; }
};
struct Divide {
  static float of(float a, float b) { return a / b; }
};
struct Maximum {
  static constexpr const char* kKind = "max";
  static float of(float a, float b) { return a > b || a != a ? a : b; }
};
struct MaximumBy0 {
  static constexpr const char* kKind = "max_by_0";
  static float of(float a, float b) { return a >= b ? 1.0F : 0.0F; }
};
struct MaximumBy1 {
  static constexpr const char* kKind = "max_by_1";
  static float of(float a, float b) { return a >= b ? 0.0F : 1.0F; }
};
struct Minimum {
  static constexpr const char* kKind = "min";
  static float of(float a, float b) { return a < b || a != a ? a : b; }
};
struct MinimumBy0 {
  static constexpr const char* kKind = "min_by_0";
  static float of(float a, float b) { return a <= b ? 1.0F : 0.0F; }
};
struct MinimumBy1 {
  static constexpr const char* kKind = "min_by_1";
  static float of(float a, float b) { return a <= b ? 0.0F : 1.0F; }
};
struct Power {
  static constexpr const char* kKind = "pow";
  static float of(float a, float b) { return std::pow(a, b); }
};
struct PowerBy0 {
  static constexpr const char* kKind = "pow_by_0";
  static float of(float a, float b) { return b == 0.0F ? 0.0F : b * std::pow(a, b - 1.0F); }
};
struct PowerBy1 {
  static constexpr const char* kKind = "pow_by_1";
  static float of(float a, float b) { return a == 0.0F && b >= 0.0F ? 0.0F : std::pow(a, b) * std::log(a); }
};
struct Modulo {
  static constexpr const char* kKind = "mod";
  static float of(float a, float b) {
    const float rest = std::fmod(a, b);
    return rest != 0.0F && (rest < 0.0F) != (b < 0.0F) ? rest + b : rest;
  }
};
struct TruncatedModulo {
  static constexpr const char* kKind = "fmod";
  static float of(float a, float b) { return std::fmod(a, b); }
};
struct Prelu {
  static constexpr const char* kKind = "prelu";
  static float of(float a, float b) { return a > 0.0F ? a : a * b; }
};
struct PreluBy0 {
  static constexpr const char* kKind = "prelu_by_0";
  static float of(float a, float b) { return a > 0.0F ? 1.0F : b; }
};
struct PreluBy1 {
  static constexpr const char* kKind = "prelu_by_1";
  static float of(float a, float /*b*/) { return a > 0.0F ? 0.0F : a; }
};

/// The operands of one row: their first elements and strides.
struct Row {
  const float* a;
  std::int64_t a_stride;
  const float* b;
  std::int64_t b_stride;
  float* y;  ///< Contiguous.
  std::int64_t n;
};

template <typename Function>
[[gnu::always_inline]] inline void compute(const Row& r) {
  if (r.a_stride == 1 && r.b_stride == 1) {
    for (std::int64_t i = 0; i < r.n; ++i) {
      r.y[i] = Function::of(r.a[i], r.b[i]);
    }
  } else if (r.a_stride == 1 && r.b_stride == 0) {
    const float b = *r.b;
    for (std::int64_t i = 0; i < r.n; ++i) {
      r.y[i] = Function::of(r.a[i], b);
    }
  } else {
    for (std::int64_t i = 0; i < r.n; ++i) {
      r.y[i] = Function::of(r.a[i * r.a_stride], r.b[i * r.b_stride]);
    }
  }
}

POPRUN_SIMD void add_row(const Row& row) {
  compute<Add>(row);
}
POPRUN_SIMD void subtract_row(const Row& row) {
  compute<Subtract>(row);
}
POPRUN_SIMD void multiply_row(const Row& row) {
  compute<Multiply>(row);
}
POPRUN_SIMD void divide_row(const Row& row) {
  compute<Divide>(row);
}

Result<std::vector<TensorType>> shape_of(std::string_view kind, const Signature& s) {
  if (s.inputs.size() == 2 && s.inputs[0].data == DataType::kF32 && s.inputs[1].data == DataType::kF32) {
    if (const auto y = broadcast_type(s.inputs)) {
      return std::vector{*y};
    }
  }
  return shape_error(kind, s, "two f32 tensors whose shapes broadcast");
}

std::unique_ptr<Kernel> numerics_of(const Signature& s, void (*compute_row)(const Row&)) {
  return make_kernel([loops = broadcast_loops(s.outputs[0], s.inputs), compute_row](const Operands& t) {
    loops.for_each_row([&](std::int64_t at, const Shape& offsets) {
      compute_row({.a = t.input_f32(0) + offsets[0],
                   .a_stride = loops.row_stride(0),
                   .b = t.input_f32(1) + offsets[1],
                   .b_stride = loops.row_stride(1),
                   .y = t.output_f32(0) + at,
                   .n = loops.row()});
    });
  });
}

Work one_flop(const Signature& s) {
  return elementwise_work(s, 1);
}

/// Counts a power as a logarithm and an exponential.
Work sixteen_flops(const Signature& s) {
  return elementwise_work(s, 16);
}

void add_gradient(Differentiator& d) {
  for (const std::size_t input : {0U, 1U}) {
    if (d.wants(input)) {
      set_broadcast_gradient(d, input, d.output_gradient(0));
    }
  }
}

void sub_gradient(Differentiator& d) {
  if (d.wants(0)) {
    set_broadcast_gradient(d, 0, d.output_gradient(0));
  }
  if (d.wants(1)) {
    set_broadcast_gradient(d, 1, d.add("neg", {d.output_gradient(0)}, {}, {1})[0]);
  }
}

void mul_gradient(Differentiator& d) {
  const Operation& op = d.operation();
  for (const std::size_t input : {0U, 1U}) {
    if (d.wants(input)) {
      const TensorId other = op.inputs[1 - input];
      set_broadcast_gradient(d, input, d.add(kinds::kMul, {d.output_gradient(0), other}, {}, {input})[0]);
    }
  }
}

/// Sets da = dy / b and db = -(dy / b) * y.
void div_gradient(Differentiator& d) {
  const Operation& op = d.operation();
  const TensorId scaled = d.add("div", {d.output_gradient(0), op.inputs[1]}, {}, {0})[0];
  if (d.wants(0)) {
    set_broadcast_gradient(d, 0, scaled);
  }
  if (d.wants(1)) {
    const TensorId product = d.add(kinds::kMul, {scaled, op.outputs[0]}, {}, {1})[0];
    set_broadcast_gradient(d, 1, d.add("neg", {product}, {}, {1})[0]);
  }
}

/// Sets da = dy and db = dy (y - a) / b.
void remainder_gradient(Differentiator& d) {
  const std::vector<TensorId> inputs = d.operation().inputs;
  const TensorId y = d.operation().outputs[0];
  if (d.wants(0)) {
    set_broadcast_gradient(d, 0, d.output_gradient(0));
  }
  if (d.wants(1)) {
    const TensorId taken = d.add(kinds::kSub, {y, inputs[0]}, {}, {1})[0];
    const TensorId slope = d.add("div", {taken, inputs[1]}, {}, {1})[0];
    set_broadcast_gradient(d, 1, d.add(kinds::kMul, {d.output_gradient(0), slope}, {}, {1})[0]);
  }
}

/// Sets the gradient of each input to dy times the derivative with respect to that input.
void gradient_by_partials(Differentiator& d) {
  const Operation& op = d.operation();
  const std::vector<TensorId> inputs = op.inputs;
  const std::string kind = op.kind;
  for (const std::size_t input : {0U, 1U}) {
    if (d.wants(input)) {
      const std::string partial = kind + (input == 0 ? "_by_0" : "_by_1");
      const TensorId slope = d.add(partial, inputs, {}, {input})[0];
      set_broadcast_gradient(d, input, d.add(kinds::kMul, {d.output_gradient(0), slope}, {}, {input})[0]);
    }
  }
}

template <typename Function>
void row_of(const Row& row) {
  compute<Function>(row);
}

/// Computes squares, the most common powers, as products.
template <>
void row_of<Power>(const Row& r) {
  if (r.b_stride == 0 && *r.b == 2.0F) {
    multiply_row({r.a, r.a_stride, r.a, r.a_stride, r.y, r.n});
  } else {
    compute<Power>(r);
  }
}

template <typename Function>
Operator function_of(void (*gradient)(Differentiator&), Work (*work)(const Signature&)) {
  return {Function::kKind, [](const Signature& s) { return shape_of(Function::kKind, s); }, gradient, work,
          [](const Signature& s) { return numerics_of(s, row_of<Function>); }};
}

}  // namespace

std::vector<Operator> operators() {
  std::vector<Operator> all = {{kinds::kAdd, [](const Signature& s) { return shape_of(kinds::kAdd, s); }, add_gradient,
                                one_flop, [](const Signature& s) { return numerics_of(s, add_row); }},
                               {kinds::kSub, [](const Signature& s) { return shape_of(kinds::kSub, s); }, sub_gradient,
                                one_flop, [](const Signature& s) { return numerics_of(s, subtract_row); }},
                               {kinds::kMul, [](const Signature& s) { return shape_of(kinds::kMul, s); }, mul_gradient,
                                one_flop, [](const Signature& s) { return numerics_of(s, multiply_row); }},
                               {"div", [](const Signature& s) { return shape_of("div", s); }, div_gradient, one_flop,
                                [](const Signature& s) { return numerics_of(s, divide_row); }},
                               function_of<Maximum>(gradient_by_partials, one_flop),
                               function_of<MaximumBy0>(nullptr, one_flop),
                               function_of<MaximumBy1>(nullptr, one_flop),
                               function_of<Minimum>(gradient_by_partials, one_flop),
                               function_of<MinimumBy0>(nullptr, one_flop),
                               function_of<MinimumBy1>(nullptr, one_flop),
                               function_of<Power>(gradient_by_partials, sixteen_flops),
                               function_of<PowerBy0>(nullptr, sixteen_flops),
                               function_of<PowerBy1>(nullptr, sixteen_flops),
                               function_of<Modulo>(remainder_gradient, one_flop),
                               function_of<TruncatedModulo>(remainder_gradient, one_flop),
                               function_of<Prelu>(gradient_by_partials, one_flop),
                               function_of<PreluBy0>(nullptr, one_flop),
                               function_of<PreluBy1>(nullptr, one_flop)};
  for (Operator& op : all) {
    op.in_place = {0, 1};
  }
  return all;
}

}  // namespace poprun::ops::elementwise
