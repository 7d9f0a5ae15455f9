#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "replica/ops/face/operator.h"

/// Connectionist temporal classification (Graves et al., ICML 2006): the loss of a sequence of labels without an
/// alignment to the frames.
///
///   N  sequences    T  frames    C  classes, of which class 0 is the blank    S  labels, after padding
///
///   ctc_loss(logits f32[N,T,C], labels i32[N,S])  ->  loss, correct, count, each f32[]
///
/// A sequence's loss is the negative logarithm of the probability, under softmax, of all alignments of its labels. All
/// T frames count; negative labels are padding, wherever they are. `loss` is the sum over the sequences divided by the
/// number of their labels, which is `count`: torch.nn.functional.ctc_loss with reduction="sum" and blank=0, divided by
/// the sum of target_lengths. (Its reduction="mean" differs if lengths differ.) Sequences without labels are padding
/// and ignored. If the labels of a sequence do not fit in T frames, the loss is infinite and its gradient NaN, as in
/// PyTorch with zero_infinity=False. `correct` is -count, since the
/// loss has no accuracy. If nothing counts, all three results are 0. A label that is not a class is reported.
///
/// Everything is computed in order, in double and in the log domain:
///
///   l       the labels with blanks between and around them: 2 S + 1 symbols
///   a[t,s]  log of the probability of the first s + 1 symbols ending with frame t
///           = log p[t,l[s]] + log-sum-exp of a[t-1,s], a[t-1,s-1] and, unless l[s] is a blank or l[s-2], a[t-1,s-2]
///   b[t,s]  log of the probability of the symbols from s on, starting with frame t
///   loss    = -log-sum-exp of a[T-1] at the last two symbols
///   dloss / dlogits[t,k] = p[t,k] - sum over s with l[s] = k of exp(a[t,s] + b[t,s] - log p[t,k] + loss)
namespace poprun::ops::ctc_loss {
namespace {

constexpr const char* kKind = "ctc_loss";
constexpr const char* kGradient = "ctc_loss_gradient";
constexpr std::int32_t kBlank = 0;
constexpr double kNever = -std::numeric_limits<double>::infinity();

bool fits(const Signature& s, std::size_t inputs) {
  return s.inputs.size() == inputs && s.inputs[0].data == DataType::kF32 && s.inputs[0].shape.size() == 3 &&
         s.inputs[0].elements() > 0 && s.inputs[0].layout == Layout::kRowMajor && s.inputs[1].shape.size() == 2 &&
         s.inputs[1] == TensorType{DataType::kI32, {s.inputs[0].shape[0], s.inputs[1].shape[1]}, Layout::kRowMajor};
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (!fits(s, 2)) {
    return shape_error(kKind, s, "logits f32[N,T,C] and labels i32[N,S]");
  }
  return std::vector<TensorType>(3, TensorType{DataType::kF32, {}, {}});
}

double log_add(double x, double y) {
  const double most = std::max(x, y);
  return most == kNever ? kNever : most + std::log1p(std::exp(std::min(x, y) - most));
}

/// The alignments of one sequence.
class Lattice {
 public:
  explicit Lattice(const Signature& s)
      : N_(s.inputs[0].shape[0]), T_(s.inputs[0].shape[1]), C_(s.inputs[0].shape[2]), S_(s.inputs[1].shape[1]) {}

  [[nodiscard]] std::int64_t sequences() const { return N_; }
  [[nodiscard]] std::int64_t frames() const { return T_; }
  [[nodiscard]] std::int64_t classes() const { return C_; }

  /// Sets the sequence n, and returns the number of its labels. Reports labels that are not classes.
  std::int64_t set(const Operands& t, std::int64_t n) {
    logits_ = t.input_f32(0) + n * T_ * C_;
    const auto* labels = reinterpret_cast<const std::int32_t*>(t.inputs[1]) + n * S_;  // NOLINT: an i32 tensor.
    symbols_.assign(1, kBlank);
    for (std::int64_t k = 0; k < S_; ++k) {
      if (labels[k] >= C_) {
        t.report({.index = labels[k], .size = C_, .element = n * S_ + k});
      } else if (labels[k] >= 0) {
        symbols_.push_back(labels[k]);
        symbols_.push_back(kBlank);
      }
    }
    return static_cast<std::int64_t>(symbols_.size() / 2);
  }

  /// Returns the loss of the sequence, and keeps a. Requires: the sequence has a label.
  double forward() {
    normalise();
    const std::size_t L = symbols_.size();
    a_.assign(static_cast<std::size_t>(T_) * L, kNever);
    a_[0] = log_p(0, symbols_[0]);
    a_[1] = log_p(0, symbols_[1]);
    for (std::int64_t t = 1; t < T_; ++t) {
      const double* before = &a_[static_cast<std::size_t>(t - 1) * L];
      double* now = &a_[static_cast<std::size_t>(t) * L];
      for (std::size_t s = 0; s < L; ++s) {
        double sum = s > 0 ? log_add(before[s], before[s - 1]) : before[s];
        sum = skips(s) ? log_add(sum, before[s - 2]) : sum;
        now[s] = sum + log_p(t, symbols_[s]);
      }
    }
    const double* last = &a_[static_cast<std::size_t>(T_ - 1) * L];
    return -log_add(last[L - 1], last[L - 2]);
  }

  /// Writes the gradient of `scale` times the sequence's loss with respect to its logits. Requires: forward() returned
  /// `loss`.
  void backward(double loss, double scale, float* gradient) {
    const std::size_t L = symbols_.size();
    std::vector<double> b(L, kNever);
    std::vector<double> after(L);
    std::vector<double> of_class(static_cast<std::size_t>(C_));
    for (std::int64_t t = T_ - 1; t >= 0; --t) {
      after.swap(b);
      for (std::size_t s = 0; s < L; ++s) {
        double sum = s + 1 < L ? log_add(after[s], after[s + 1]) : after[s];
        sum = s + 2 < L && skips(s + 2) ? log_add(sum, after[s + 2]) : sum;
        sum = t == T_ - 1 ? (s + 2 >= L ? 0 : kNever) : sum;
        b[s] = sum + log_p(t, symbols_[s]);
      }
      std::ranges::fill(of_class, 0.0);
      for (std::size_t s = 0; s < L; ++s) {
        const double both = a_[static_cast<std::size_t>(t) * L + s] + b[s] - log_p(t, symbols_[s]) + loss;
        of_class[static_cast<std::size_t>(symbols_[s])] += std::exp(both);
      }
      for (std::int64_t k = 0; k < C_; ++k) {
        gradient[t * C_ + k] =
            static_cast<float>(scale * (std::exp(log_p(t, k)) - of_class[static_cast<std::size_t>(k)]));
      }
    }
  }

 private:
  /// Returns whether an alignment may go from symbol s - 2 to s.
  [[nodiscard]] bool skips(std::size_t s) const {
    return s >= 2 && symbols_[s] != kBlank && symbols_[s] != symbols_[s - 2];
  }

  [[nodiscard]] double log_p(std::int64_t t, std::int64_t k) const {
    return static_cast<double>(logits_[t * C_ + k]) - log_sums_[static_cast<std::size_t>(t)];
  }

  /// Computes the logarithm of the sum of the exponentials of each frame.
  void normalise() {
    log_sums_.resize(static_cast<std::size_t>(T_));
    for (std::int64_t t = 0; t < T_; ++t) {
      const float* row = logits_ + t * C_;
      const auto largest = static_cast<double>(*std::max_element(row, row + C_));
      double sum = 0;
      for (std::int64_t k = 0; k < C_; ++k) {
        sum += std::exp(static_cast<double>(row[k]) - largest);
      }
      log_sums_[static_cast<std::size_t>(t)] = largest + std::log(sum);
    }
  }

  std::int64_t N_;
  std::int64_t T_;
  std::int64_t C_;
  std::int64_t S_;
  const float* logits_ = nullptr;
  std::vector<std::int32_t> symbols_;
  std::vector<double> log_sums_;
  std::vector<double> a_;
};

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([lattice = Lattice(s)](const Operands& t) mutable {
    double loss = 0;
    std::int64_t count = 0;
    for (std::int64_t n = 0; n < lattice.sequences(); ++n) {
      if (const std::int64_t labels = lattice.set(t, n); labels > 0) {
        loss += lattice.forward();
        count += labels;
      }
    }
    *t.output_f32(0) = count == 0 ? 0.0F : static_cast<float>(loss / static_cast<double>(count));
    *t.output_f32(1) = -static_cast<float>(count);
    *t.output_f32(2) = static_cast<float>(count);
  });
}

/// Counts the softmax (12 operations per logit) and, per symbol and frame, two sums of three exponentials at eight
/// operations each. Each frame depends on the one before it.
Work lattice_work(const Signature& s, std::int64_t passes) {
  const Shape& logits = s.inputs[0].shape;
  Work work = elementwise_work(s, 0);
  work.vector_flops =
      s.inputs[0].elements() * 12 + passes * logits[0] * logits[1] * (2 * s.inputs[1].shape[1] + 1) * 28;
  work.compute_sets = 3 + passes * logits[1];
  return work;
}

Work work(const Signature& s) {
  return lattice_work(s, 1);
}

/// ctc_loss_gradient(logits, labels, dloss f32[])  ->  dlogits
Result<std::vector<TensorType>> gradient_shape(const Signature& s) {
  if (!fits(s, 3)) {
    return shape_error(kGradient, s, "logits, labels and dloss");
  }
  return std::vector{s.inputs[0]};
}

std::unique_ptr<Kernel> gradient_numerics(const Signature& s) {
  return make_kernel([lattice = Lattice(s)](const Operands& t) mutable {
    std::int64_t count = 0;
    for (std::int64_t n = 0; n < lattice.sequences(); ++n) {
      count += lattice.set(t, n);
    }
    const double scale = count == 0 ? 0.0 : static_cast<double>(*t.input_f32(2)) / static_cast<double>(count);
    const std::int64_t size = lattice.frames() * lattice.classes();
    for (std::int64_t n = 0; n < lattice.sequences(); ++n) {
      float* gradient = t.output_f32(0) + n * size;
      if (lattice.set(t, n) > 0) {
        const double loss = lattice.forward();
        lattice.backward(loss, scale, gradient);
      } else {
        std::fill_n(gradient, size, 0.0F);
      }
    }
  });
}

Work gradient_work(const Signature& s) {
  return lattice_work(s, 2);
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  d.set_input_gradient(0, d.add(kGradient, {op.inputs[0], op.inputs[1], d.output_gradient(0)}, {}, {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  Operator loss{kKind, shape, gradient, work, numerics};
  loss.infinite_because =
      "the labels of a sequence do not fit in its frames, of which each label needs one, and so does each blank "
      "between "
      "equal labels; shorten the labels, or let the model output more frames";
  return {std::move(loss), {kGradient, gradient_shape, nullptr, gradient_work, gradient_numerics}};
}

}  // namespace poprun::ops::ctc_loss
