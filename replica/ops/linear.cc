#include "replica/ops/dnnl/kernel.h"
#include "replica/ops/operator.h"

/// Dense layer.
///
///   B  rows in the micro-batch    I  input features    O  output features
///
///   linear(x [B,I], w [O,I], b [O])  ->  y [B,O] = x w^T + b
namespace poprun {
namespace {

using dnnl::memory;

bool is_matrix(const TensorType& type) {
  return type.data == DataType::kF32 && type.shape.size() == 2 && type.layout == Layout::kRowMajor;
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() != 3 || !is_matrix(s.inputs[0]) || !is_matrix(s.inputs[1]) ||
      s.inputs[0].shape[1] != s.inputs[1].shape[1] ||
      s.inputs[2] != TensorType{DataType::kF32, {s.inputs[1].shape[0]}, {}}) {
    return shape_error("linear", s, "x f32[B,I], w f32[O,I], b f32[O]");
  }
  return std::vector{TensorType{DataType::kF32, {s.inputs[0].shape[0], s.inputs[1].shape[0]}, {}}};
}

memory::desc matrix(std::int64_t rows, std::int64_t columns, memory::dims strides) {
  return {{rows, columns}, memory::data_type::f32, std::move(strides)};
}

/// A row-major [rows, columns] matrix, and the same bytes seen transposed.
memory::desc plain(std::int64_t rows, std::int64_t columns) {
  return matrix(rows, columns, {columns, 1});
}
memory::desc transposed(std::int64_t rows, std::int64_t columns) {
  return matrix(rows, columns, {1, rows});
}

/// One matrix product between operands as they lie: a is input 0, b input 1, c output 0.
std::unique_ptr<Kernel> matmul_kernel(const memory::desc& a, const memory::desc& b,
                                      const memory::desc& c, bool with_bias) {
  const memory::desc bias({1, c.dims()[1]}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::desc desc =
      with_bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul::primitive_desc plan(desc, dnnl_attributes(), dnnl_cpu());
  std::vector<DnnlKernel::Argument> arguments = {{DNNL_ARG_SRC, false, 0, a, a},
                                                 {DNNL_ARG_WEIGHTS, false, 1, b, b},
                                                 {DNNL_ARG_DST, true, 0, c, c}};
  if (with_bias) {
    arguments.push_back({DNNL_ARG_BIAS, false, 2, bias, bias});
  }
  return std::make_unique<DnnlKernel>(dnnl::matmul(plan), plan.scratchpad_desc(), arguments);
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const std::int64_t B = s.inputs[0].shape[0];
  const std::int64_t I = s.inputs[0].shape[1];
  const std::int64_t O = s.inputs[1].shape[0];
  return matmul_kernel(plain(B, I), transposed(I, O), plain(B, O), true);
}

Work matmul_work(const Signature& s, std::int64_t macs) {
  Work work = elementwise_work(s, 0);
  work.macs = macs;
  for (const TensorType& input : s.inputs) {
    work.exchanged += input.bytes();
  }
  return work;
}

Work work(const Signature& s) {
  return matmul_work(s, s.inputs[0].shape[0] * s.inputs[1].elements());
}

/// linear_input_gradient(dy [B,O], w [O,I])  ->  dx [B,I] = dy w
Result<std::vector<TensorType>> input_gradient_shape(const Signature& s) {
  if (s.inputs.size() != 2 || !is_matrix(s.inputs[0]) || !is_matrix(s.inputs[1]) ||
      s.inputs[0].shape[1] != s.inputs[1].shape[0]) {
    return shape_error("linear_input_gradient", s, "dy f32[B,O], w f32[O,I]");
  }
  return std::vector{TensorType{DataType::kF32, {s.inputs[0].shape[0], s.inputs[1].shape[1]}, {}}};
}

std::unique_ptr<Kernel> input_gradient_numerics(const Signature& s) {
  const std::int64_t B = s.inputs[0].shape[0];
  const std::int64_t O = s.inputs[1].shape[0];
  const std::int64_t I = s.inputs[1].shape[1];
  return matmul_kernel(plain(B, O), plain(O, I), plain(B, I), false);
}

Work input_gradient_work(const Signature& s) {
  return matmul_work(s, s.inputs[0].shape[0] * s.inputs[1].elements());
}

/// linear_weight_gradient(x [B,I], dy [B,O])  ->  dw [O,I] = dy^T x, db [O] = column sums of dy
Result<std::vector<TensorType>> weight_gradient_shape(const Signature& s) {
  if (s.inputs.size() != 2 || !is_matrix(s.inputs[0]) || !is_matrix(s.inputs[1]) ||
      s.inputs[0].shape[0] != s.inputs[1].shape[0]) {
    return shape_error("linear_weight_gradient", s, "x f32[B,I], dy f32[B,O]");
  }
  const std::int64_t I = s.inputs[0].shape[1];
  const std::int64_t O = s.inputs[1].shape[1];
  return std::vector{TensorType{DataType::kF32, {O, I}, {}}, TensorType{DataType::kF32, {O}, {}}};
}

/// db, beside the product. Rows are added in order.
void column_sums(const float* dy, std::int64_t B, std::int64_t O, float* db) {
  std::fill_n(db, O, 0.0F);
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t o = 0; o < O; ++o) {
      db[o] += dy[b * O + o];
    }
  }
}

std::unique_ptr<Kernel> weight_gradient_numerics(const Signature& s) {
  class WeightGradient final : public Kernel {
   public:
    WeightGradient(std::int64_t B, std::int64_t I, std::int64_t O)
        : b_(B),
          o_(O),
          product_(matmul_kernel(transposed(O, B), plain(B, I), plain(O, I), false)) {}
    void run(const Operands& t) override {
      product_->run({{t.inputs[1], t.inputs[0]}, {t.outputs[0]}, t.scratch});
      column_sums(t.input_f32(1), b_, o_, t.output_f32(1));
    }
    [[nodiscard]] Bytes scratch() const override { return product_->scratch(); }

   private:
    std::int64_t b_;
    std::int64_t o_;
    std::unique_ptr<Kernel> product_;
  };
  return std::make_unique<WeightGradient>(s.inputs[0].shape[0], s.inputs[0].shape[1],
                                          s.inputs[1].shape[1]);
}

Work weight_gradient_work(const Signature& s) {
  return matmul_work(s, s.inputs[0].elements() * s.inputs[1].shape[1]);
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  const TensorId dy = d.output_gradient(0);
  const auto dw = d.add("linear_weight_gradient", {op.inputs[0], dy}, {}, {1, 2});
  d.set_input_gradient(1, dw[0]);
  d.set_input_gradient(2, dw[1]);
  if (d.wants(0)) {
    d.set_input_gradient(0, d.add("linear_input_gradient", {dy, op.inputs[1]}, {}, {0})[0]);
  }
}

}  // namespace

std::vector<Operator> linear_operators() {
  return {
      {"linear", shape, gradient, work, numerics},
      {"linear_input_gradient", input_gradient_shape, nullptr, input_gradient_work,
       input_gradient_numerics},
      {"linear_weight_gradient", weight_gradient_shape, nullptr, weight_gradient_work,
       weight_gradient_numerics},
  };
}

}  // namespace poprun
