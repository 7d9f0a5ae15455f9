
#include "replica/ops/face/operator.h"
#include "replica/ops/face/simd.h"

/// relu(x)  ->  y = max(x, 0), any shape and layout. NaN stays NaN.
namespace poprun::ops::relu {
namespace {

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kF32) {
    return shape_error("relu", s, "one f32 tensor");
  }
  return std::vector{s.inputs[0]};
}

POPRUN_SIMD void forward(const float* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = x[i] < 0.0F ? 0.0F : x[i];
  }
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([n = s.inputs[0].elements()](const Operands& t) { forward(t.input_f32(0), t.output_f32(0), n); });
}

Work work(const Signature& s) {
  return elementwise_work(s, 1);
}

/// relu_gradient(y, dy)  ->  dx = dy where y > 0, else 0
Result<std::vector<TensorType>> gradient_shape(const Signature& s) {
  if (s.inputs.size() != 2 || s.inputs[0] != s.inputs[1]) {
    return shape_error("relu_gradient", s, "y and dy of the same type");
  }
  return std::vector{s.inputs[0]};
}

POPRUN_SIMD void backward(const float* y, const float* dy, float* dx, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    dx[i] = y[i] > 0.0F ? dy[i] : 0.0F;
  }
}

std::unique_ptr<Kernel> gradient_numerics(const Signature& s) {
  return make_kernel([n = s.inputs[0].elements()](const Operands& t) {
    backward(t.input_f32(0), t.input_f32(1), t.output_f32(0), n);
  });
}

void gradient(Differentiator& d) {
  const TensorId y = d.operation().outputs[0];
  d.set_input_gradient(0, d.add("relu_gradient", {y, d.output_gradient(0)}, {}, {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {selecting(in_place({"relu", shape, gradient, work, numerics}, {0})),
          selecting(in_place({"relu_gradient", gradient_shape, nullptr, work, gradient_numerics}, {0, 1}))};
}

}  // namespace poprun::ops::relu
