#include <cmath>

#include "replica/ops/dnnl/kernel.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/softmax/row_exp.h"

/// Softmax over the last dimension, and its logarithm. For other dimensions, use `transpose` first.
///
///   B  rows: all dimensions but the last, flattened    K  elements normalised together
///
///   softmax(x [...,K])      ->  y = exp(x) / sum(exp(x))    dx = y (dy - sum(dy y))
///   log_softmax(x [...,K])  ->  y = x - log(sum(exp(x)))    dx = dy - exp(y) sum(dy)
///
/// Both are computed relative to the largest x of the row. The logarithm of the sum is computed here, in double,
/// because oneDNN's has an error of 1e-6 if a probability is near 1.
namespace poprun::ops::softmax {
namespace {

struct Softmax {
  using Forward = dnnl::softmax_forward;
  using Backward = dnnl::softmax_backward;
  static constexpr const char* kKind = "softmax";
};

struct LogSoftmax {
  using Forward = dnnl::logsoftmax_forward;
  using Backward = dnnl::logsoftmax_backward;
  static constexpr const char* kKind = "log_softmax";
};

/// An exponential counts as eight operations.
constexpr std::int64_t kFlops = 12;

bool is_rows(const TensorType& type) {
  return type.data == DataType::kF32 && !type.shape.empty() && type.layout == Layout::kRowMajor;
}

dnnl::memory::desc rows_of(const TensorType& type) {
  const std::int64_t K = type.shape.back();
  return {{type.elements() / K, K}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab};
}

template <typename Kind>
typename Kind::Forward::primitive_desc plan_forward(const TensorType& type) {
  return {{dnnl::prop_kind::forward_training, rows_of(type), 1}, dnnl_attributes(), dnnl_cpu()};
}

template <typename Kind>
Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() != 1 || !is_rows(s.inputs[0])) {
    return shape_error(Kind::kKind, s, "x f32[...,K]");
  }
  return std::vector{s.inputs[0]};
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const auto plan = plan_forward<Softmax>(s.inputs[0]);
  const auto rows = rows_of(s.inputs[0]);
  return std::make_unique<DnnlKernel>(
      dnnl::softmax_forward(plan), plan.scratchpad_desc(),
      std::vector<DnnlKernel::Argument>{{DNNL_ARG_SRC, false, 0, rows, rows}, {DNNL_ARG_DST, true, 0, rows, rows}});
}

std::unique_ptr<Kernel> log_numerics(const Signature& s) {
  const std::int64_t K = s.inputs[0].shape.back();
  return make_kernel([K, B = s.inputs[0].elements() / K](const Operands& t) {
    for (std::int64_t b = 0; b < B; ++b) {
      const float* x = t.input_f32(0) + b * K;
      float* y = t.output_f32(0) + b * K;
      const float largest = largest_of(x, K);
      const auto log_sum = static_cast<float>(std::log(sum_of_exp(x, K, largest)));
      for (std::int64_t k = 0; k < K; ++k) {
        y[k] = (x[k] - largest) - log_sum;
      }
    }
  });
}

Work work(const Signature& s) {
  Work work = elementwise_work(s, kFlops);
  work.compute_sets = 3;  // Row maxima, sums, results.
  return work;
}

template <typename Kind>
Result<std::vector<TensorType>> gradient_shape(const Signature& s) {
  if (s.inputs.size() != 2 || s.inputs[0] != s.inputs[1] || !is_rows(s.inputs[0])) {
    return shape_error(std::string{Kind::kKind} + "_gradient", s, "y and dy of the same type f32[...,K]");
  }
  return std::vector{s.inputs[0]};
}

template <typename Kind>
std::unique_ptr<Kernel> gradient_numerics(const Signature& s) {
  const auto rows = rows_of(s.inputs[0]);
  const typename Kind::Backward::primitive_desc plan({rows, rows, 1}, dnnl_attributes(), dnnl_cpu(),
                                                     plan_forward<Kind>(s.inputs[0]));
  return std::make_unique<DnnlKernel>(typename Kind::Backward(plan), plan.scratchpad_desc(),
                                      std::vector<DnnlKernel::Argument>{{DNNL_ARG_DST, false, 0, rows, rows},
                                                                        {DNNL_ARG_DIFF_DST, false, 1, rows, rows},
                                                                        {DNNL_ARG_DIFF_SRC, true, 0, rows, rows}});
}

Work gradient_work(const Signature& s) {
  Work work = elementwise_work(s, 4);
  work.compute_sets = 2;  // Sums, results.
  return work;
}

template <typename Kind>
void gradient(Differentiator& d) {
  const TensorId y = d.operation().outputs[0];
  d.set_input_gradient(0, d.add(std::string{Kind::kKind} + "_gradient", {y, d.output_gradient(0)}, {}, {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {
      in_place({"softmax", shape<Softmax>, gradient<Softmax>, work, numerics}, {0}),
      in_place({"softmax_gradient", gradient_shape<Softmax>, nullptr, gradient_work, gradient_numerics<Softmax>}, {1}),
      in_place({"log_softmax", shape<LogSoftmax>, gradient<LogSoftmax>, work, log_numerics}, {0}),
      in_place(
          {"log_softmax_gradient", gradient_shape<LogSoftmax>, nullptr, gradient_work, gradient_numerics<LogSoftmax>},
          {1})};
}

}  // namespace poprun::ops::softmax
