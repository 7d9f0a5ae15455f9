#include <algorithm>
#include <cmath>
#include <cstdint>

#include "replica/ops/face/operator.h"
#include "replica/ops/softmax/row_exp.h"

/// The loss of a classifier, or of every position of a sequence.
///
///   B  rows: all dimensions but the last, flattened    K  classes
///
///   softmax_cross_entropy(logits f32[...,K], labels i32[...])  ->  loss, correct, count, each f32[]
///
/// Labels come from data: rows whose label is not in [0, K), such as the -1 of padding and unmasked positions, do not
/// count. `loss` is the mean over the `count` rows that do, and `correct` is the number of them whose largest logit
/// (the first of equal ones) is at the label. If no row counts, all three are 0. Rows are summed in order, in double,
/// and rounded once.
namespace poprun::ops::softmax_cross_entropy {
namespace {

bool fits(const Signature& s) {
  if (s.inputs.size() < 2 || s.inputs[0].data != DataType::kF32 || s.inputs[0].shape.empty() ||
      s.inputs[0].shape.back() < 1 || s.inputs[0].layout != Layout::kRowMajor) {
    return false;
  }
  const Shape& logits = s.inputs[0].shape;
  return s.inputs[1] == TensorType{DataType::kI32, {logits.begin(), logits.end() - 1}, {}};
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() != 2 || !fits(s)) {
    return shape_error("softmax_cross_entropy", s, "logits f32[...,K], labels i32[...]");
  }
  return std::vector<TensorType>(3, TensorType{DataType::kF32, {}, {}});
}

struct Rows {
  std::int64_t B;
  std::int64_t K;

  explicit Rows(const Signature& s) : B(s.inputs[1].elements()), K(s.inputs[0].shape.back()) {}
  [[nodiscard]] bool counts(std::int32_t label) const { return label >= 0 && label < K; }
};

const std::int32_t* labels_of(const Operands& t) {
  return reinterpret_cast<const std::int32_t*>(t.inputs[1]);  // NOLINT: i32 tensor.
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([rows = Rows(s)](const Operands& t) {
    double loss = 0;
    std::int64_t correct = 0;
    std::int64_t count = 0;
    for (std::int64_t b = 0; b < rows.B; ++b) {
      const std::int32_t label = labels_of(t)[b];
      if (!rows.counts(label)) {
        continue;
      }
      const float* row = t.input_f32(0) + b * rows.K;
      const float largest = largest_of(row, rows.K);
      loss +=
          static_cast<double>(largest) - static_cast<double>(row[label]) + std::log(sum_of_exp(row, rows.K, largest));
      correct += std::find(row, row + label + 1, largest) == row + label ? 1 : 0;
      ++count;
    }
    *t.output_f32(0) = count == 0 ? 0.0F : static_cast<float>(loss / static_cast<double>(count));
    *t.output_f32(1) = static_cast<float>(correct);
    *t.output_f32(2) = static_cast<float>(count);
  });
}

/// An exponential counts as eight operations.
Work work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = s.inputs[0].elements() * 10;
  work.compute_sets = 3;  // Row maxima, sums, total.
  return work;
}

/// softmax_cross_entropy_gradient(logits, labels, dloss f32[])  ->  dlogits
Result<std::vector<TensorType>> gradient_shape(const Signature& s) {
  if (s.inputs.size() != 3 || !fits(s)) {
    return shape_error("softmax_cross_entropy_gradient", s, "logits, labels, dloss");
  }
  return std::vector{s.inputs[0]};
}

std::unique_ptr<Kernel> gradient_numerics(const Signature& s) {
  return make_kernel([rows = Rows(s)](const Operands& t) {
    const std::int32_t* labels = labels_of(t);
    const auto count = std::count_if(labels, labels + rows.B, [&](std::int32_t label) { return rows.counts(label); });
    const double scale = count == 0 ? 0.0 : static_cast<double>(*t.input_f32(2)) / static_cast<double>(count);
    for (std::int64_t b = 0; b < rows.B; ++b) {
      const float* row = t.input_f32(0) + b * rows.K;
      float* gradient = t.output_f32(0) + b * rows.K;
      if (!rows.counts(labels[b])) {
        std::fill_n(gradient, rows.K, 0.0F);
        continue;
      }
      const float largest = largest_of(row, rows.K);
      const double sum = sum_of_exp(row, rows.K, largest);
      write_exponentials(row, rows.K, largest, static_cast<float>(scale / sum), gradient);
      gradient[labels[b]] -= static_cast<float>(scale);
    }
  });
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  d.set_input_gradient(
      0, d.add("softmax_cross_entropy_gradient", {op.inputs[0], op.inputs[1], d.output_gradient(0)}, {}, {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {{"softmax_cross_entropy", shape, gradient, work, numerics},
          {"softmax_cross_entropy_gradient", gradient_shape, nullptr, work, gradient_numerics}};
}

}  // namespace poprun::ops::softmax_cross_entropy
