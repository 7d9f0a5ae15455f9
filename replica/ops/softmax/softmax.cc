#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "replica/ops/dnnl/kernel.h"
#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/simd.h"

/// Softmax over the last dimension, its logarithm, and the loss of a classifier or of every position of a sequence. For
/// other dimensions, use `transpose` first.
///
///   B  rows: all dimensions but the last, flattened    K  elements normalised together: classes
///
///   softmax(x [...,K])      ->  y = exp(x) / sum(exp(x))    dx = y (dy - sum(dy y))
///   log_softmax(x [...,K])  ->  y = x - log(sum(exp(x)))    dx = dy - exp(y) sum(dy)
///
/// Both are computed relative to the largest x of the row. The logarithm of the sum is computed here, in double,
/// because oneDNN's result has an error of 1e-6 if a probability is near 1.
///
///   softmax_cross_entropy(logits f32[...,K], labels i32[...])  ->  loss, correct, count, each f32[]
///
/// Since labels come from data, rows whose label is not in [0, K), such as the -1 of padding and unmasked positions,
/// are ignored. `loss` is the mean over the other `count` rows, and `correct` is the number of those whose largest
/// logit (the first, if several are equal) is at the label. If all rows are ignored, all three results are 0. Rows are
/// summed in order, in double, and the sum is rounded once.
///
///   join_losses(loss_0, correct_0, count_0, loss_1, ...)  ->  loss, correct, count
///
/// joins the results of several parts of a batch: the mean of the losses weighted by their counts, and the sums.
///
/// The optional attribute smoothing=s, 0 <= s < 1, smooths the labels, as in torch.nn.CrossEntropyLoss: a label stands
/// for the probability (1 - s) of its class plus s / K of every class. Without it, s is 0.
namespace poprun::ops::softmax {
namespace {

/// Number of interleaved partial sums. It is fixed, so that a sum is the same on every CPU.
constexpr std::int64_t kLanes = 16;

/// Returns exp(x) for x <= 0, but at least exp(-87), with an error of at most 2 units in the last place. NaN stays NaN.
/// Uses Cody and Waite's reduction with the polynomial of Moshier's Cephes (expf.c), in a form that vectorises.
[[gnu::always_inline]] inline float exp_of_negative(float x) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23. Adding it rounds to an integer.
  x = x < -87.0F ? -87.0F : x;
  const float shifted = x * 1.44269504F + kMagic;
  const float n = shifted - kMagic;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kMagic) + 127;
  return p * std::bit_cast<float>(static_cast<std::uint32_t>(exponent) << 23U);
}

/// Returns the largest of row[0, K), ignoring NaN unless row[0] is NaN. Requires: K >= 1.
POPRUN_SIMD float largest_of(const float* row, std::int64_t K) {
  std::array<float, kLanes> lanes;
  lanes.fill(row[0]);
  std::int64_t k = 0;
  for (; k + kLanes <= K; k += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) {
      const float x = row[k + l];
      float& lane = lanes[static_cast<std::size_t>(l)];
      lane = lane < x ? x : lane;
    }
  }
  float largest = *std::max_element(lanes.begin(), lanes.end());
  for (; k < K; ++k) {
    largest = largest < row[k] ? row[k] : largest;
  }
  return largest;
}

/// Returns the sum of exp(row[k] - largest), with a relative error of about 1e-7.
POPRUN_SIMD double sum_of_exp(const float* row, std::int64_t K, float largest) {
  std::array<float, kLanes> lanes{};
  std::int64_t k = 0;
  for (; k + kLanes <= K; k += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) {
      lanes[static_cast<std::size_t>(l)] += exp_of_negative(row[k + l] - largest);
    }
  }
  double sum = 0;
  for (const float lane : lanes) {
    sum += static_cast<double>(lane);
  }
  for (; k < K; ++k) {
    sum += static_cast<double>(exp_of_negative(row[k] - largest));
  }
  return sum;
}

/// Sets y[k] = factor * exp(row[k] - largest).
POPRUN_SIMD void write_exponentials(const float* __restrict row, std::int64_t K, float largest, float factor,
                                    float* __restrict y) {
  for (std::int64_t k = 0; k < K; ++k) {
    y[k] = factor * exp_of_negative(row[k] - largest);
  }
}

/// Returns the sum of row[0, K).
POPRUN_SIMD double sum_of(const float* row, std::int64_t K) {
  std::array<double, kLanes> lanes{};
  std::int64_t k = 0;
  for (; k + kLanes <= K; k += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) {
      lanes[static_cast<std::size_t>(l)] += static_cast<double>(row[k + l]);
    }
  }
  double sum = 0;
  for (const double lane : lanes) {
    sum += lane;
  }
  for (; k < K; ++k) {
    sum += static_cast<double>(row[k]);
  }
  return sum;
}

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

/// Operations per element. An exponential counts as eight.
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

/// Counts popnn's steps (poplibs, lib/popnn/NonLinearity.cpp): the row maxima, x minus them, exp, the sums, their
/// inverses, and the product, which together read and write the tensor 8 times.
Work work(const Signature& s) {
  Work work = elementwise_work(s, kFlops);
  work.memory_traffic = s.inputs[0].bytes() * 8;
  work.compute_sets = 6;
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

/// Counts popnn's steps, as above: y * dy, its sums, y times the sums, and the difference, which together read and
/// write a tensor 9 times.
Work gradient_work(const Signature& s) {
  Work work = elementwise_work(s, 4);
  work.memory_traffic = s.inputs[0].bytes() * 9;
  work.compute_sets = 4;
  return work;
}

template <typename Kind>
void gradient(Differentiator& d) {
  const TensorId y = d.operation().outputs[0];
  d.set_input_gradient(0, d.add(std::string{Kind::kKind} + "_gradient", {y, d.output_gradient(0)}, {}, {0})[0]);
}

/// Returns the part of a label's probability that is spread over all classes.
double smoothing_of(const Signature& s) {
  return s.attributes.has(kSmoothing) ? s.attributes.real(kSmoothing) : 0.0;
}

bool loss_fits(const Signature& s) {
  if (s.inputs.size() < 2 || s.inputs[0].data != DataType::kF32 || s.inputs[0].shape.empty() ||
      s.inputs[0].shape.back() < 1 || s.inputs[0].layout != Layout::kRowMajor ||
      !(smoothing_of(s) >= 0 && smoothing_of(s) < 1)) {
    return false;
  }
  const Shape& logits = s.inputs[0].shape;
  return s.inputs[1] == TensorType{DataType::kI32, {logits.begin(), logits.end() - 1}, {}};
}

Result<std::vector<TensorType>> loss_shape(const Signature& s) {
  if (s.inputs.size() != 2 || !loss_fits(s)) {
    return shape_error(kinds::kSoftmaxCrossEntropy, s,
                       "logits f32[...,K], labels i32[...] and, if any, 0 <= smoothing < 1");
  }
  return std::vector<TensorType>(3, TensorType{DataType::kF32, {}, {}});
}

struct Rows {
  std::int64_t B;
  std::int64_t K;
  double smoothing;

  explicit Rows(const Signature& s)
      : B(s.inputs[1].elements()), K(s.inputs[0].shape.back()), smoothing(smoothing_of(s)) {}

  /// Returns the mean of a row's logits, weighted by the probabilities for which its label stands.
  [[nodiscard]] double expected(const float* row, std::int32_t label) const {
    const auto own = static_cast<double>(row[label]);
    return smoothing == 0 ? own : (1 - smoothing) * own + smoothing * sum_of(row, K) / static_cast<double>(K);
  }

  /// Subtracts from a row's gradient `scale` times the probabilities for which its label stands.
  void subtract_label(double scale, std::int32_t label, float* gradient) const {
    if (smoothing > 0) {
      const auto everywhere = static_cast<float>(scale * smoothing / static_cast<double>(K));
      std::for_each(gradient, gradient + K, [everywhere](float& x) { x -= everywhere; });
    }
    gradient[label] -= static_cast<float>(scale * (1 - smoothing));
  }

  [[nodiscard]] bool counts(std::int32_t label) const { return label >= 0 && label < K; }
};

const std::int32_t* labels_of(const Operands& t) {
  return reinterpret_cast<const std::int32_t*>(t.inputs[1]);  // NOLINT: i32 tensor.
}

std::unique_ptr<Kernel> loss_numerics(const Signature& s) {
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
      loss += static_cast<double>(largest) - rows.expected(row, label) + std::log(sum_of_exp(row, rows.K, largest));
      correct += std::find(row, row + label + 1, largest) == row + label ? 1 : 0;
      ++count;
    }
    *t.output_f32(0) = count == 0 ? 0.0F : static_cast<float>(loss / static_cast<double>(count));
    *t.output_f32(1) = static_cast<float>(correct);
    *t.output_f32(2) = static_cast<float>(count);
  });
}

/// Counts an exponential as eight operations.
Work loss_work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = s.inputs[0].elements() * 10;
  work.compute_sets = 3;  // They compute row maxima, sums and the total.
  return work;
}

/// softmax_cross_entropy_gradient(logits, labels, dloss f32[])  [smoothing=.]  ->  dlogits
Result<std::vector<TensorType>> loss_gradient_shape(const Signature& s) {
  if (s.inputs.size() != 3 || !loss_fits(s)) {
    return shape_error("softmax_cross_entropy_gradient", s, "logits, labels and dloss");
  }
  return std::vector{s.inputs[0]};
}

std::unique_ptr<Kernel> loss_gradient_numerics(const Signature& s) {
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
      rows.subtract_label(scale, labels[b], gradient);
    }
  });
}

void loss_gradient(Differentiator& d) {
  const Operation& op = d.operation();
  d.set_input_gradient(0, d.add("softmax_cross_entropy_gradient", {op.inputs[0], op.inputs[1], d.output_gradient(0)},
                                op.attributes, {0})[0]);
}

bool are_scalars(const std::vector<TensorType>& types) {
  return std::ranges::all_of(types, [](const TensorType& t) { return t == TensorType{DataType::kF32, {}, {}}; });
}

Result<std::vector<TensorType>> join_shape(const Signature& s) {
  if (s.inputs.empty() || s.inputs.size() % 3 != 0 || !are_scalars(s.inputs)) {
    return shape_error(kinds::kJoinLosses, s, "three scalars for each part: loss, correct, count");
  }
  return std::vector<TensorType>(3, s.inputs[0]);
}

std::unique_ptr<Kernel> join_numerics(const Signature& s) {
  return make_kernel([parts = s.inputs.size() / 3](const Operands& t) {
    double loss = 0;
    double correct = 0;
    double count = 0;
    for (std::size_t k = 0; k < parts; ++k) {
      const auto of_part = static_cast<double>(*t.input_f32(3 * k + 2));
      loss += static_cast<double>(*t.input_f32(3 * k)) * of_part;
      correct += static_cast<double>(*t.input_f32(3 * k + 1));
      count += of_part;
    }
    *t.output_f32(0) = count == 0 ? 0.0F : static_cast<float>(loss / count);
    *t.output_f32(1) = static_cast<float>(correct);
    *t.output_f32(2) = static_cast<float>(count);
  });
}

Work join_work(const Signature& s) {
  return elementwise_work(s, 2);
}

/// join_losses_gradient(dloss, count_0, count_1, ...)  ->  dloss_0, dloss_1, ...: dloss * count_k / sum of the counts
Result<std::vector<TensorType>> join_gradient_shape(const Signature& s) {
  if (s.inputs.size() < 2 || !are_scalars(s.inputs)) {
    return shape_error("join_losses_gradient", s, "dloss and the count of each part");
  }
  return std::vector<TensorType>(s.inputs.size() - 1, s.inputs[0]);
}

std::unique_ptr<Kernel> join_gradient_numerics(const Signature& s) {
  return make_kernel([parts = s.inputs.size() - 1](const Operands& t) {
    double count = 0;
    for (std::size_t k = 0; k < parts; ++k) {
      count += static_cast<double>(*t.input_f32(k + 1));
    }
    const double each = count == 0 ? 0.0 : static_cast<double>(*t.input_f32(0)) / count;
    for (std::size_t k = 0; k < parts; ++k) {
      *t.output_f32(k) = static_cast<float>(each * static_cast<double>(*t.input_f32(k + 1)));
    }
  });
}

void join_gradient(Differentiator& d) {
  const std::vector<TensorId> in = d.operation().inputs;
  std::vector<TensorId> operands = {d.output_gradient(0)};
  std::vector<std::size_t> losses;
  for (std::size_t k = 0; k < in.size(); k += 3) {
    losses.push_back(k);
    operands.push_back(in[k + 2]);
  }
  const std::vector<TensorId> gradients = d.add("join_losses_gradient", operands, {}, losses);
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    d.set_input_gradient(losses[k], gradients[k]);
  }
}

}  // namespace

std::vector<Operator> operators() {
  return {
      in_place({"softmax", shape<Softmax>, gradient<Softmax>, work, numerics}, {0}),
      in_place({"softmax_gradient", gradient_shape<Softmax>, nullptr, gradient_work, gradient_numerics<Softmax>}, {1}),
      in_place({"log_softmax", shape<LogSoftmax>, gradient<LogSoftmax>, work, log_numerics}, {0}),
      in_place(
          {"log_softmax_gradient", gradient_shape<LogSoftmax>, nullptr, gradient_work, gradient_numerics<LogSoftmax>},
          {1}),
      {kinds::kSoftmaxCrossEntropy, loss_shape, loss_gradient, loss_work, loss_numerics},
      {"softmax_cross_entropy_gradient", loss_gradient_shape, nullptr, loss_work, loss_gradient_numerics},
      {kinds::kJoinLosses, join_shape, join_gradient, join_work, join_numerics},
      {"join_losses_gradient", join_gradient_shape, nullptr, join_work, join_gradient_numerics}};
}

}  // namespace poprun::ops::softmax
