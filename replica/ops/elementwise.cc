#include "replica/ops/broadcast/broadcast.h"
#include "replica/ops/operator.h"
#include "replica/ops/simd.h"

/// Arithmetic of two tensors, element by element.
///
///   add(a, b)  ->  a + b        sub(a, b)  ->  a - b
///   mul(a, b)  ->  a * b        div(a, b)  ->  a / b
///
/// Shapes broadcast as NumPy's do; every operator may be used on any mixture of layouts. The result
/// lies channels-last where an operand of its rank does, else row-major. Gradients are summed over
/// what was repeated.
namespace poprun {
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

/// The operands of one row: where it begins and how far apart its elements are.
struct Row {
  const float* a;
  std::int64_t a_stride;
  const float* b;
  std::int64_t b_stride;
  float* y;  ///< Elements lie side by side.
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
  const auto bad = [&] { return shape_error(kind, s, "two f32 tensors whose shapes broadcast"); };
  if (s.inputs.size() != 2 || s.inputs[0].data != DataType::kF32 ||
      s.inputs[1].data != DataType::kF32) {
    return bad();
  }
  const auto shape = broadcast_shape(s.inputs[0].shape, s.inputs[1].shape);
  if (!shape) {
    return bad();
  }
  const bool image =
      s.inputs[0].layout == Layout::kChannelsLast || s.inputs[1].layout == Layout::kChannelsLast;
  if (image && shape->size() != 4) {
    return bad();
  }
  return std::vector{
      TensorType{DataType::kF32, *shape, image ? Layout::kChannelsLast : Layout::kRowMajor}};
}

std::unique_ptr<Kernel> numerics_of(const Signature& s, void (*compute_row)(const Row&)) {
  return make_kernel(
      [loops = broadcast_loops(s.outputs[0], s.inputs), compute_row](const Operands& t) {
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

/// Adds `gradient`, which has the result's shape, to that of `input`.
void pass_on(Differentiator& d, std::size_t input, TensorId gradient) {
  const TensorType& wanted = d.type(d.operation().inputs[input]);
  if (d.type(gradient) != wanted) {
    const std::string layout = wanted.layout == Layout::kChannelsLast ? "nhwc" : "row-major";
    gradient =
        d.add("sum_to", {gradient}, {{"shape", wanted.shape}, {"layout", layout}}, {input})[0];
  }
  d.set_input_gradient(input, gradient);
}

void add_gradient(Differentiator& d) {
  for (const std::size_t input : {0U, 1U}) {
    if (d.wants(input)) {
      pass_on(d, input, d.output_gradient(0));
    }
  }
}

void sub_gradient(Differentiator& d) {
  if (d.wants(0)) {
    pass_on(d, 0, d.output_gradient(0));
  }
  if (d.wants(1)) {
    pass_on(d, 1, d.add("neg", {d.output_gradient(0)}, {}, {1})[0]);
  }
}

void mul_gradient(Differentiator& d) {
  const Operation& op = d.operation();
  for (const std::size_t input : {0U, 1U}) {
    if (d.wants(input)) {
      const TensorId other = op.inputs[1 - input];
      pass_on(d, input, d.add("mul", {d.output_gradient(0), other}, {}, {input})[0]);
    }
  }
}

/// da = dy / b, db = -(dy / b) * y.
void div_gradient(Differentiator& d) {
  const Operation& op = d.operation();
  const TensorId scaled = d.add("div", {d.output_gradient(0), op.inputs[1]}, {}, {0})[0];
  if (d.wants(0)) {
    pass_on(d, 0, scaled);
  }
  if (d.wants(1)) {
    const TensorId product = d.add("mul", {scaled, op.outputs[0]}, {}, {1})[0];
    pass_on(d, 1, d.add("neg", {product}, {}, {1})[0]);
  }
}

}  // namespace

std::vector<Operator> elementwise_operators() {
  return {{"add", [](const Signature& s) { return shape_of("add", s); }, add_gradient, one_flop,
           [](const Signature& s) { return numerics_of(s, add_row); }},
          {"sub", [](const Signature& s) { return shape_of("sub", s); }, sub_gradient, one_flop,
           [](const Signature& s) { return numerics_of(s, subtract_row); }},
          {"mul", [](const Signature& s) { return shape_of("mul", s); }, mul_gradient, one_flop,
           [](const Signature& s) { return numerics_of(s, multiply_row); }},
          {"div", [](const Signature& s) { return shape_of("div", s); }, div_gradient, one_flop,
           [](const Signature& s) { return numerics_of(s, divide_row); }}};
}

}  // namespace poprun
