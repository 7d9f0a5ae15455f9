#include <algorithm>

#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/products/product_kernel.h"

/// Dense (fully connected) layer.
///
///   B  rows: all dimensions of x but the last, flattened    I  input features    O  output features
///
///   linear(x [...,I], w [O,I], b [O])  ->  y [...,O] = x w^T + b
///
/// b is optional. With input_major=1 the weight is stored as [I,O], like the Conv1D of GPT-2.
namespace poprun::ops::linear {
namespace {

bool is_dense(const TensorType& type) {
  return type.data == DataType::kF32 && !type.shape.empty() && type.layout == Layout::kRowMajor;
}

bool input_major(const Attributes& attributes) {
  return is_set(attributes, kInputMajor);
}

struct Sizes {
  std::int64_t I;
  std::int64_t O;
};

Sizes sizes_of(const TensorType& w, const Attributes& attributes) {
  return input_major(attributes) ? Sizes{w.shape[0], w.shape[1]} : Sizes{w.shape[1], w.shape[0]};
}

std::int64_t rows_of(const TensorType& type) {
  return type.shape.back() == 0 ? 0 : type.elements() / type.shape.back();
}

TensorType with_features(TensorType type, std::int64_t features) {
  type.shape.back() = features;
  return type;
}

/// Returns the weight as a matrix [I,O].
DnnlMatrix weight_matrix(const Sizes& sizes, const Attributes& attributes) {
  return input_major(attributes) ? DnnlMatrix::plain({sizes.I, sizes.O})
                                 : DnnlMatrix::plain({sizes.O, sizes.I}).transposed();
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  const bool fits = (s.inputs.size() == 2 || s.inputs.size() == 3) && is_dense(s.inputs[0]) && is_dense(s.inputs[1]) &&
                    s.inputs[1].shape.size() == 2;
  const Sizes sizes = fits ? sizes_of(s.inputs[1], s.attributes) : Sizes{};
  if (!fits || s.inputs[0].shape.back() != sizes.I ||
      (s.inputs.size() == 3 && s.inputs[2] != TensorType{DataType::kF32, {sizes.O}, {}})) {
    return shape_error(kinds::kLinear, s,
                       input_major(s.attributes) ? "x f32[...,I], w f32[I,O] and optionally b f32[O]"
                                                 : "x f32[...,I], w f32[O,I] and optionally b f32[O]");
  }
  return std::vector{with_features(s.inputs[0], sizes.O)};
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const std::int64_t B = rows_of(s.inputs[0]);
  const Sizes sizes = sizes_of(s.inputs[1], s.attributes);
  return matmul_kernel(DnnlMatrix::plain({B, sizes.I}), weight_matrix(sizes, s.attributes),
                       DnnlMatrix::plain({B, sizes.O}), s.inputs.size() == 3);
}

Work work(const Signature& s) {
  return product_work(s, rows_of(s.inputs[0]) * s.inputs[1].elements());
}

/// Returns the product [rows, in] x [in, out] for the planner.
Product dense_product(const Signature& s, ProductPass pass, std::int64_t rows, std::int64_t in, std::int64_t out) {
  return {.kind = ProductKind::kMatmul,
          .pass = pass,
          .arithmetic = arithmetic_of(s),
          .groups = 1,
          .batch = rows,
          .input_channels = in,
          .output_channels = out,
          .field = {}};
}

Product product(const Signature& s) {
  const Sizes sizes = sizes_of(s.inputs[1], s.attributes);
  return dense_product(s, ProductPass::kForward, rows_of(s.inputs[0]), sizes.I, sizes.O);
}

constexpr ProductAxis kBatch = ProductAxis::kBatch;
constexpr ProductAxis kInputs = ProductAxis::kInputs;
constexpr ProductAxis kOutputs = ProductAxis::kOutputs;

OperandAxes operand_axes(const Signature& s) {
  const bool by_inputs = input_major(s.attributes);
  return {.input = {kBatch, kInputs},
          .weights = {by_inputs ? kInputs : kOutputs, by_inputs ? kOutputs : kInputs},
          .output = {kBatch, kOutputs}};
}

/// linear_input_gradient(dy [...,O], w)  ->  dx [...,I] = dy w
Result<std::vector<TensorType>> input_gradient_shape(const Signature& s) {
  if (s.inputs.size() != 2 || !is_dense(s.inputs[0]) || !is_dense(s.inputs[1]) || s.inputs[1].shape.size() != 2 ||
      s.inputs[0].shape.back() != sizes_of(s.inputs[1], s.attributes).O) {
    return shape_error(kinds::kLinearInputGradient, s, "dy f32[...,O] and w f32[O,I]");
  }
  return std::vector{with_features(s.inputs[0], sizes_of(s.inputs[1], s.attributes).I)};
}

std::unique_ptr<Kernel> input_gradient_numerics(const Signature& s) {
  const std::int64_t B = rows_of(s.inputs[0]);
  const Sizes sizes = sizes_of(s.inputs[1], s.attributes);
  return matmul_kernel(DnnlMatrix::plain({B, sizes.O}), weight_matrix(sizes, s.attributes).transposed(),
                       DnnlMatrix::plain({B, sizes.I}), false);
}

Product input_gradient_product(const Signature& s) {
  const Sizes sizes = sizes_of(s.inputs[1], s.attributes);
  return dense_product(s, ProductPass::kInputGradient, rows_of(s.inputs[0]), sizes.O, sizes.I);
}

/// Returns the axes of dy w, a product whose inputs are the layer's outputs and whose outputs are the layer's inputs.
OperandAxes input_gradient_axes(const Signature& s) {
  const bool by_inputs = input_major(s.attributes);
  return {.input = {kBatch, kInputs},
          .weights = {by_inputs ? kOutputs : kInputs, by_inputs ? kInputs : kOutputs},
          .output = {kBatch, kOutputs}};
}

/// linear_weight_gradient(x [...,I], dy [...,O]) bias=0|1  ->  dw [O,I] = dy^T x, or [I,O] = x^T dy with input_major=1;
/// with bias=1 also db [O], the column sums of dy
bool with_bias(const Attributes& attributes) {
  return attributes.integer("bias") != 0;
}

Result<std::vector<TensorType>> weight_gradient_shape(const Signature& s) {
  if (s.inputs.size() != 2 || !is_dense(s.inputs[0]) || !is_dense(s.inputs[1]) ||
      rows_of(s.inputs[0]) != rows_of(s.inputs[1]) || !s.attributes.has("bias")) {
    return shape_error(kinds::kLinearWeightGradient, s, "x f32[...,I], dy f32[...,O] and bias=0|1");
  }
  const std::int64_t I = s.inputs[0].shape.back();
  const std::int64_t O = s.inputs[1].shape.back();
  std::vector<TensorType> outputs = {{DataType::kF32, input_major(s.attributes) ? Shape{I, O} : Shape{O, I}, {}}};
  if (with_bias(s.attributes)) {
    outputs.push_back({DataType::kF32, {O}, {}});
  }
  return outputs;
}

/// Computes dw = dy^T x, or x^T dy with input_major=1.
class WeightProduct final : public Kernel {
 public:
  explicit WeightProduct(const Signature& s) : swaps_(!input_major(s.attributes)) {
    const std::int64_t B = rows_of(s.inputs[0]);
    const DnnlMatrix x = DnnlMatrix::plain({B, s.inputs[0].shape.back()});
    const DnnlMatrix dy = DnnlMatrix::plain({B, s.inputs[1].shape.back()});
    const DnnlMatrix dw = DnnlMatrix::plain(s.outputs[0].shape);
    product_ = swaps_ ? matmul_kernel(dy.transposed(), x, dw, false) : matmul_kernel(x.transposed(), dy, dw, false);
  }
  void run(const Operands& t) override {
    product_->run({{t.inputs[swaps_ ? 1 : 0], t.inputs[swaps_ ? 0 : 1]}, {t.outputs[0]}, t.scratch});
  }
  [[nodiscard]] Bytes scratch() const override { return product_->scratch(); }

 private:
  bool swaps_;
  std::unique_ptr<Kernel> product_;
};

std::unique_ptr<Kernel> weight_gradient_numerics(const Signature& s) {
  auto product = std::make_unique<WeightProduct>(s);
  if (!with_bias(s.attributes)) {
    return product;
  }
  return with_column_sums(std::move(product), rows_of(s.inputs[1]), s.inputs[1].shape.back());
}

Work weight_gradient_work(const Signature& s) {
  return product_work(s, s.inputs[0].elements() * s.inputs[1].shape.back());
}

/// Returns the product for the planner. It sums over the rows of x, and its own rows are the features of x.
Product weight_gradient_product(const Signature& s) {
  return dense_product(s, ProductPass::kWeightGradient, s.inputs[0].shape.back(), rows_of(s.inputs[0]),
                       s.inputs[1].shape.back());
}

OperandAxes weight_gradient_axes(const Signature& s) {
  const bool by_inputs = input_major(s.attributes);
  return {.input = {kInputs, kBatch},
          .weights = {kInputs, kOutputs},
          .output = {by_inputs ? kBatch : kOutputs, by_inputs ? kOutputs : kBatch}};
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  const TensorId dy = d.output_gradient(0);
  const bool bias = op.inputs.size() == 3;
  if (d.wants(1) || (bias && d.wants(2))) {
    Attributes attributes = op.attributes;
    attributes.set("bias", std::int64_t{bias ? 1 : 0});
    const auto dw = d.add(kinds::kLinearWeightGradient, {op.inputs[0], dy}, attributes,
                          bias ? std::vector<std::size_t>{1, 2} : std::vector<std::size_t>{1});
    d.set_input_gradient(1, dw[0]);
    if (bias) {
      d.set_input_gradient(2, dw[1]);
    }
  }
  if (d.wants(0)) {
    d.set_input_gradient(0, d.add(kinds::kLinearInputGradient, {dy, op.inputs[1]}, op.attributes, {0})[0]);
  }
}

std::int64_t last_axis(const TensorType& type) {
  return static_cast<std::int64_t>(type.shape.size()) - 1;
}

/// Return the axes of the sums of the passes: input features, output features, and the first dimension of the rows.
std::vector<std::int64_t> contraction(const Signature& s) {
  return {last_axis(s.inputs[0]), input_major(s.attributes) ? 0 : 1, kNoAxis};
}
std::vector<std::int64_t> input_gradient_contraction(const Signature& s) {
  return {last_axis(s.inputs[0]), input_major(s.attributes) ? 1 : 0};
}
std::vector<std::int64_t> weight_gradient_contraction(const Signature& s) {
  const Shape& x = s.inputs[0].shape;
  const Shape& dy = s.inputs[1].shape;
  return x.size() > 1 && dy.size() > 1 && x[0] == dy[0] ? std::vector<std::int64_t>{0, 0} : std::vector<std::int64_t>{};
}

}  // namespace

std::vector<Operator> operators() {
  return {
      {kinds::kLinear, shape, gradient, work, numerics, contraction, product, operand_axes},
      {kinds::kLinearInputGradient, input_gradient_shape, nullptr, work, input_gradient_numerics,
       input_gradient_contraction, input_gradient_product, input_gradient_axes},
      {kinds::kLinearWeightGradient, weight_gradient_shape, nullptr, weight_gradient_work, weight_gradient_numerics,
       weight_gradient_contraction, weight_gradient_product, weight_gradient_axes},
  };
}

}  // namespace poprun::ops::linear
