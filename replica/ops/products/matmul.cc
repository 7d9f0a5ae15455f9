#include <algorithm>
#include <numeric>
#include <utility>

#include "replica/ops/broadcast/broadcast.h"
#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/shaped.h"
#include "replica/ops/products/product_kernel.h"

/// Batched products of matrices.
///
///   M  rows of the result    N  columns of the result    K  terms of each sum
///
///   matmul(a [...,M,K], b [...,K,N]) transpose_a=0|1 transpose_b=0|1 scale=.  ->  c [...,M,N] = scale * a b
///
/// With transpose_a=1, a is [...,K,M]; with transpose_b=1, b is [...,N,K]. scale defaults to 1. Leading dimensions
/// broadcast as in NumPy. If b is a single matrix and a is not transposed, the leading dimensions of a are flattened
/// into rows, and there is a single product.
namespace poprun::ops::matmul {
namespace {

float scale_of(const Attributes& attributes) {
  return attributes.has(kScale) ? static_cast<float>(attributes.real(kScale)) : 1.0F;
}

bool is_matrices(const TensorType& type) {
  return type.data == DataType::kF32 && type.shape.size() >= 2 && type.layout == Layout::kRowMajor;
}

Shape leading(const Shape& shape) {
  return {shape.begin(), shape.end() - 2};
}

std::int64_t product(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>{});
}

/// Returns the numbers of rows and columns, exchanged if `transposed`.
std::pair<std::int64_t, std::int64_t> matrix_of(const Shape& shape, bool transposed) {
  const std::int64_t rows = shape[shape.size() - 2];
  const std::int64_t columns = shape.back();
  return transposed ? std::pair{columns, rows} : std::pair{rows, columns};
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  const auto bad = [&] {
    return shape_error(kinds::kMatmul, s,
                       "a f32[...,M,K] and b f32[...,K,N] (last two dimensions exchanged with "
                       "transpose_a, transpose_b), with leading dimensions that broadcast");
  };
  if (s.inputs.size() != 2 || !is_matrices(s.inputs[0]) || !is_matrices(s.inputs[1])) {
    return bad();
  }
  const auto [M, K] = matrix_of(s.inputs[0].shape, is_set(s.attributes, kTransposeA));
  const auto [rows, N] = matrix_of(s.inputs[1].shape, is_set(s.attributes, kTransposeB));
  auto c = broadcast_shape(leading(s.inputs[0].shape), leading(s.inputs[1].shape));
  if (rows != K || !c) {
    return bad();
  }
  c->insert(c->end(), {M, N});
  return std::vector{TensorType{DataType::kF32, *c, {}}};
}

/// Returns an operand with `batch` in place of its leading dimensions.
DnnlMatrix matrices(const Shape& shape, bool transposed, Shape batch) {
  batch.insert(batch.end(), {shape[shape.size() - 2], shape.back()});
  const DnnlMatrix plain = DnnlMatrix::plain(std::move(batch));
  return transposed ? plain.transposed() : plain;
}

/// Returns the leading dimensions of an operand, padded at the front with ones to `rank` dimensions.
Shape padded(const Shape& shape, std::size_t rank) {
  Shape batch = leading(shape);
  batch.insert(batch.begin(), rank - batch.size(), 1);
  return batch;
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const Shape& a = s.inputs[0].shape;
  const Shape& b = s.inputs[1].shape;
  const Shape& c = s.outputs[0].shape;
  const bool transpose_a = is_set(s.attributes, kTransposeA);
  const bool transpose_b = is_set(s.attributes, kTransposeB);
  const float scale = scale_of(s.attributes);
  if (product(leading(b)) == 1 && !transpose_a) {
    const std::int64_t rows = product(c) / c.back();
    return matmul_kernel(DnnlMatrix::plain({rows, a.back()}), matrices(b, transpose_b, {}),
                         DnnlMatrix::plain({rows, c.back()}), false, scale);
  }
  if (leading(a) == leading(b)) {
    const Shape batch = {product(leading(c))};
    return matmul_kernel(matrices(a, transpose_a, batch), matrices(b, transpose_b, batch), matrices(c, false, batch),
                         false, scale);
  }
  const std::size_t rank = c.size() - 2;
  return matmul_kernel(matrices(a, transpose_a, padded(a, rank)), matrices(b, transpose_b, padded(b, rank)),
                       matrices(c, false, leading(c)), false, scale);
}

Work work(const Signature& s) {
  return product_work(s,
                      s.outputs[0].elements() * matrix_of(s.inputs[0].shape, is_set(s.attributes, kTransposeA)).second);
}

/// Returns the product for the planner. If b is a single matrix and a is not transposed, all rows form one group.
/// Otherwise, each pair of matrices is a group, and an operand that is broadcast is counted in each.
Product product_of(const Signature& s) {
  const Shape& c = s.outputs[0].shape;
  const bool transpose_a = is_set(s.attributes, kTransposeA);
  const std::int64_t groups = product(leading(c));
  const bool one = product(leading(s.inputs[1].shape)) == 1 && !transpose_a;
  return {.kind = ProductKind::kMatmul,
          .pass = ProductPass::kForward,
          .arithmetic = arithmetic_of(s),
          .groups = one ? 1 : groups,
          .batch = c[c.size() - 2] * (one ? groups : 1),
          .input_channels = matrix_of(s.inputs[0].shape, transpose_a).second,
          .output_channels = c.back(),
          .field = {}};
}

OperandAxes operand_axes(const Signature& s) {
  using enum ProductAxis;
  const Shape& c = s.outputs[0].shape;
  const std::int64_t groups = product_of(s).groups;
  const auto axes = [groups](const Shape& shape, ProductAxis outer, ProductAxis inner, bool transposed) {
    std::vector<ProductAxis> all = {transposed ? inner : outer, transposed ? outer : inner};
    if (groups > 1 && product(leading(shape)) == groups) {
      all.insert(all.begin(), kGroups);
    }
    return all;
  };
  return {.input = axes(s.inputs[0].shape, kBatch, kInputs, is_set(s.attributes, kTransposeA)),
          .weights = axes(s.inputs[1].shape, kInputs, kOutputs, is_set(s.attributes, kTransposeB)),
          .output = axes(c, kBatch, kOutputs, false)};
}

std::vector<std::int64_t> contraction(const Signature& s) {
  const auto last = [&s](std::size_t input, std::int64_t from_end) {
    return static_cast<std::int64_t>(s.inputs[input].shape.size()) - from_end;
  };
  return {last(0, is_set(s.attributes, kTransposeA) ? 2 : 1), last(1, is_set(s.attributes, kTransposeB) ? 1 : 2)};
}

struct Factor {
  TensorId matrix;
  bool transposed;
};

/// Sets the gradient of `input` to the product of two factors, summed over broadcast dimensions.
void add_product(Differentiator& d, std::size_t input, const Factor& left, const Factor& right) {
  Attributes attributes{{kTransposeA, std::int64_t{left.transposed ? 1 : 0}},
                        {kTransposeB, std::int64_t{right.transposed ? 1 : 0}}};
  if (d.operation().attributes.has(kScale)) {
    attributes.set(kScale, d.operation().attributes.real(kScale));
  }
  TensorId gradient = d.add(kinds::kMatmul, {left.matrix, right.matrix}, attributes, {input})[0];
  const Shape& wanted = d.type(d.operation().inputs[input]).shape;
  if (d.type(gradient).shape != wanted) {
    gradient = d.add("sum_to", {gradient}, shaped(wanted), {input})[0];
  }
  d.set_input_gradient(input, gradient);
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  const TensorId a = op.inputs[0];
  const TensorId b = op.inputs[1];
  const bool transpose_a = is_set(op.attributes, kTransposeA);
  const bool transpose_b = is_set(op.attributes, kTransposeB);
  const TensorId dc = d.output_gradient(0);
  if (d.wants(0)) {
    if (transpose_a) {
      add_product(d, 0, {b, transpose_b}, {dc, true});
    } else {
      add_product(d, 0, {dc, false}, {b, !transpose_b});
    }
  }
  if (!d.wants(1)) {
    return;
  }
  if (d.type(b).shape.size() == 2 && !transpose_a && !op.attributes.has(kScale)) {
    // As in the forward pass, all rows form a single product.
    const Attributes attributes{{"bias", std::int64_t{0}}, {kInputMajor, std::int64_t{transpose_b ? 0 : 1}}};
    d.set_input_gradient(1, d.add(kinds::kLinearWeightGradient, {a, dc}, attributes, {1})[0]);
  } else if (transpose_b) {
    add_product(d, 1, {dc, true}, {a, transpose_a});
  } else {
    add_product(d, 1, {a, !transpose_a}, {dc, false});
  }
}

}  // namespace

std::vector<Operator> operators() {
  return {{kinds::kMatmul, shape, gradient, work, numerics, contraction, product_of, operand_axes}};
}

}  // namespace poprun::ops::matmul
