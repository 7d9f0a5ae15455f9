#include <algorithm>
#include <cmath>
#include <cstdint>

#include "replica/ops/face/operator.h"

/// The loss of yes-or-no predictions, from logits, as torch.nn.BCEWithLogitsLoss computes it.
///
///   N  rows: the samples    D  logits of a row
///
///   binary_cross_entropy(logits f32[N,...], labels f32 or i32 [N,...])  ->  loss, correct, count, each f32[]
///
///   loss = max(x, 0) - x y + log(1 + exp(-|x|)) for a logit x and its label y in [0, 1]
///
/// Labels are f32, and the loss is the mean over the rows of the mean of a row. A row with a NaN is ignored, since NaN
/// marks padding, and `count` is the number of the other rows. Or labels are i32, 0 or 1, and the loss is the mean over
/// all labels that are not negative; `count` is their number. `correct` is the share of the logits, or their number,
/// whose sign predicts the label: x > 0 if y > 0.5. If nothing counts, all three results are 0. Sums run in order, in
/// double, and are rounded once.
namespace poprun::ops::binary_cross_entropy {
namespace {

constexpr const char* kKind = "binary_cross_entropy";
constexpr const char* kGradient = "binary_cross_entropy_gradient";

bool fits(const Signature& s, std::size_t inputs) {
  return s.inputs.size() == inputs && s.inputs[0].data == DataType::kF32 && !s.inputs[0].shape.empty() &&
         s.inputs[0].elements() > 0 && s.inputs[0].layout == Layout::kRowMajor &&
         (s.inputs[1].data == DataType::kF32 || s.inputs[1].data == DataType::kI32) &&
         s.inputs[1] == TensorType{s.inputs[1].data, s.inputs[0].shape, Layout::kRowMajor};
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (!fits(s, 2)) {
    return shape_error(kKind, s, "logits f32[N,...], and labels f32 or i32 of the same shape");
  }
  return std::vector<TensorType>(3, TensorType{DataType::kF32, {}, {}});
}

/// The labels of one use, as numbers and weights.
class Labels {
 public:
  explicit Labels(const Signature& s)
      : integers_(s.inputs[1].data == DataType::kI32),
        N_(integers_ ? s.inputs[0].elements() : s.inputs[0].shape[0]),
        D_(s.inputs[0].elements() / N_) {}

  [[nodiscard]] std::int64_t rows() const { return N_; }
  [[nodiscard]] std::int64_t width() const { return D_; }

  [[nodiscard]] bool counts(const Operands& t, std::int64_t row) const {
    if (integers_) {
      return integers(t)[row] >= 0;
    }
    const float* labels = t.input_f32(1) + row * D_;
    return std::none_of(labels, labels + D_, [](float y) { return std::isnan(y); });
  }

  [[nodiscard]] std::int64_t count(const Operands& t) const {
    std::int64_t rows = 0;
    for (std::int64_t row = 0; row < N_; ++row) {
      rows += counts(t, row) ? 1 : 0;
    }
    return rows;
  }

  [[nodiscard]] double at(const Operands& t, std::int64_t i) const {
    return integers_ ? static_cast<double>(integers(t)[i]) : static_cast<double>(t.input_f32(1)[i]);
  }

 private:
  static const std::int32_t* integers(const Operands& t) {
    return reinterpret_cast<const std::int32_t*>(t.inputs[1]);  // NOLINT: an i32 tensor.
  }

  bool integers_;
  std::int64_t N_;
  std::int64_t D_;
};

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([labels = Labels(s)](const Operands& t) {
    double loss = 0;
    std::int64_t correct = 0;
    std::int64_t count = 0;
    for (std::int64_t row = 0; row < labels.rows(); ++row) {
      if (!labels.counts(t, row)) {
        continue;
      }
      ++count;
      for (std::int64_t i = row * labels.width(); i < (row + 1) * labels.width(); ++i) {
        const auto x = static_cast<double>(t.input_f32(0)[i]);
        const double y = labels.at(t, i);
        loss += std::max(x, 0.0) - x * y + std::log1p(std::exp(-std::abs(x)));
        correct += (x > 0) == (y > 0.5) ? 1 : 0;
      }
    }
    const auto width = static_cast<double>(labels.width());
    *t.output_f32(0) = count == 0 ? 0.0F : static_cast<float>(loss / (static_cast<double>(count) * width));
    *t.output_f32(1) = static_cast<float>(static_cast<double>(correct) / width);
    *t.output_f32(2) = static_cast<float>(count);
  });
}

/// Counts an exponential and a logarithm as eight operations each.
Work work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = s.inputs[0].elements() * 22;
  work.compute_sets = 3;  // The losses, their sums within the tiles, and the total.
  return work;
}

/// binary_cross_entropy_gradient(logits, labels, dloss f32[])  ->  dlogits
Result<std::vector<TensorType>> gradient_shape(const Signature& s) {
  if (!fits(s, 3)) {
    return shape_error(kGradient, s, "logits, labels and dloss");
  }
  return std::vector{s.inputs[0]};
}

std::unique_ptr<Kernel> gradient_numerics(const Signature& s) {
  return make_kernel([labels = Labels(s)](const Operands& t) {
    const auto count = static_cast<double>(labels.count(t) * labels.width());
    const double scale = count == 0 ? 0.0 : static_cast<double>(*t.input_f32(2)) / count;
    for (std::int64_t row = 0; row < labels.rows(); ++row) {
      const bool counts = labels.counts(t, row);
      for (std::int64_t i = row * labels.width(); i < (row + 1) * labels.width(); ++i) {
        const double probability = 1 / (1 + std::exp(-static_cast<double>(t.input_f32(0)[i])));
        t.output_f32(0)[i] = counts ? static_cast<float>(scale * (probability - labels.at(t, i))) : 0.0F;
      }
    }
  });
}

Work gradient_work(const Signature& s) {
  return elementwise_work(s, 12);
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  d.set_input_gradient(0, d.add(kGradient, {op.inputs[0], op.inputs[1], d.output_gradient(0)}, {}, {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {{kKind, shape, gradient, work, numerics},
          {kGradient, gradient_shape, nullptr, gradient_work, gradient_numerics}};
}

}  // namespace poprun::ops::binary_cross_entropy
