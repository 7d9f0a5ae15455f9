#include <algorithm>
#include <cmath>
#include <cstdint>

#include "replica/ops/operator.h"

/// Loss of a classifier.
///
///   B  rows    K  classes
///
///   softmax_cross_entropy(logits f32[B,K], labels i32[B])  ->  loss, correct, count, each f32[]
///
/// loss is the mean over the `count` rows whose label is not negative, `correct` how many of them
/// have their largest logit at the label (the first of equals). Without such rows all three are 0.
/// Requires labels < K. Rows are added in order, in double, rounded once.
namespace poprun {
namespace {

bool fits(const Signature& s) {
  return s.inputs.size() >= 2 && s.inputs[0].data == DataType::kF32 &&
         s.inputs[0].shape.size() == 2 && s.inputs[0].layout == Layout::kRowMajor &&
         s.inputs[1] == TensorType{DataType::kI32, {s.inputs[0].shape[0]}, {}};
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() != 2 || !fits(s)) {
    return shape_error("softmax_cross_entropy", s, "logits f32[B,K], labels i32[B]");
  }
  return std::vector<TensorType>(3, TensorType{DataType::kF32, {}, {}});
}

const std::int32_t* labels_of(const Operands& t) {
  return reinterpret_cast<const std::int32_t*>(t.inputs[1]);  // NOLINT: i32 tensor.
}

/// log(sum(exp(row))), computed around the largest logit.
double log_sum_exp(const float* row, std::int64_t K) {
  const double largest = *std::max_element(row, row + K);
  double sum = 0;
  for (std::int64_t k = 0; k < K; ++k) {
    sum += std::exp(row[k] - largest);
  }
  return largest + std::log(sum);
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([B = s.inputs[0].shape[0], K = s.inputs[0].shape[1]](const Operands& t) {
    double loss = 0;
    std::int64_t correct = 0;
    std::int64_t count = 0;
    for (std::int64_t b = 0; b < B; ++b) {
      const std::int32_t label = labels_of(t)[b];
      if (label < 0) {
        continue;
      }
      const float* row = t.input_f32(0) + b * K;
      loss += log_sum_exp(row, K) - row[label];
      correct += std::max_element(row, row + K) - row == label ? 1 : 0;
      ++count;
    }
    *t.output_f32(0) = count == 0 ? 0.0F : static_cast<float>(loss / static_cast<double>(count));
    *t.output_f32(1) = static_cast<float>(correct);
    *t.output_f32(2) = static_cast<float>(count);
  });
}

/// An exponential is counted as eight operations.
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
  return make_kernel([B = s.inputs[0].shape[0], K = s.inputs[0].shape[1]](const Operands& t) {
    const std::int32_t* labels = labels_of(t);
    const auto count = std::count_if(labels, labels + B, [](std::int32_t l) { return l >= 0; });
    const double scale =
        count == 0 ? 0.0 : static_cast<double>(*t.input_f32(2)) / static_cast<double>(count);
    for (std::int64_t b = 0; b < B; ++b) {
      const float* row = t.input_f32(0) + b * K;
      float* gradient = t.output_f32(0) + b * K;
      if (labels[b] < 0) {
        std::fill_n(gradient, K, 0.0F);
        continue;
      }
      const double normaliser = log_sum_exp(row, K);
      for (std::int64_t k = 0; k < K; ++k) {
        const double probability = std::exp(row[k] - normaliser);
        gradient[k] = static_cast<float>((probability - (k == labels[b] ? 1.0 : 0.0)) * scale);
      }
    }
  });
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  d.set_input_gradient(0, d.add("softmax_cross_entropy_gradient",
                                {op.inputs[0], op.inputs[1], d.output_gradient(0)}, {}, {0})[0]);
}

}  // namespace

std::vector<Operator> softmax_cross_entropy_operators() {
  return {{"softmax_cross_entropy", shape, gradient, work, numerics},
          {"softmax_cross_entropy_gradient", gradient_shape, nullptr, work, gradient_numerics}};
}

}  // namespace poprun
