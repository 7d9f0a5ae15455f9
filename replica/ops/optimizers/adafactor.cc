#include <algorithm>
#include <array>
#include <cmath>

#include "replica/ops/face/simd.h"
#include "replica/ops/optimizers/optimizer.h"
#include "replica/ops/optimizers/update_rule.h"

/// Adafactor (Shazeer and Stern, arXiv:1804.04235, algorithms 4 and 5), without momentum and with an external learning
/// rate: the variant of fairseq and Hugging Face with relative_step=False, scale_parameter=False and
/// warmup_init=False. Its second small constant, for the scale of a parameter, is therefore not used.
///
///   adafactor(w [..,R,C], g, row [..,R], column [..,C], rate, step)  ->  w, row, column
///   adafactor(w [n] or [], g, v, rate, step)                         ->  w, v
///       square-epsilon=. clip-threshold=. decay-exponent=.
///
///   G = scale * g
///   beta = 1 - step^-decay-exponent, where `step` counts updates from 1
///   row = beta * row + (1 - beta) * (mean of G^2 over the columns + square-epsilon);  column: over the rows
///   V = row * column / mean(row), for each matrix of the last two dimensions
///   v = beta * v + (1 - beta) * (G^2 + square-epsilon), which is the V of a vector
///   u = G / sqrt(V)
///   w -= rate * (u / max(1, rms(u) / clip-threshold) + weight_decay * w), where rms is taken over the whole tensor
///
/// Sums run over the elements in order, in double. Since they need the full tensor, the rule does not work on shards.
namespace poprun::optimizers::adafactor {
namespace {

constexpr const char* kKind = "adafactor";
constexpr const char* kEpsilon = "square-epsilon";
constexpr const char* kThreshold = "clip-threshold";
constexpr const char* kExponent = "decay-exponent";

/// Number of interleaved partial sums. It is fixed, so that a sum is the same on every CPU.
constexpr std::int64_t kLanes = 16;

std::optional<Shape> row_shape(const Shape& w) {
  return w.size() < 2 ? std::nullopt : std::optional(Shape(w.begin(), w.end() - 1));
}

std::optional<Shape> column_shape(const Shape& w) {
  if (w.size() < 2) {
    return std::nullopt;
  }
  Shape shape(w.begin(), w.end() - 2);
  shape.push_back(w.back());
  return shape;
}

std::optional<Shape> vector_shape(const Shape& w) {
  return w.size() < 2 ? std::optional(w) : std::nullopt;
}

std::vector<TensorType> state_types(const TensorType& w) {
  std::vector<TensorType> types;
  for (const auto& shape : {row_shape(w.shape), column_shape(w.shape), vector_shape(w.shape)}) {
    if (shape) {
      types.push_back({DataType::kF32, *shape, Layout::kRowMajor});
    }
  }
  return types;
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  const TensorType w = s.inputs.empty() ? update_rule::kScalar : s.inputs[0];
  std::vector<TensorType> tensors = state_types(w);
  tensors.insert(tensors.begin(), {w, w});
  if (w.layout != Layout::kRowMajor || !update_rule::takes(s, tensors, 2) ||
      !update_rule::has(s, {kEpsilon, kThreshold, kExponent})) {
    return shape_error(kKind, s,
                       "w and g of the same row-major f32 type; row and column of a matrix, or v of a vector; rate and "
                       "step f32[]; scale, weight_decay, square-epsilon, clip-threshold and decay-exponent");
  }
  tensors.erase(tensors.begin());
  return tensors;
}

/// Returns the sum of x^2.
POPRUN_SIMD double sum_of_squares(const float* x, std::int64_t n) {
  std::array<double, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) {
      const auto value = static_cast<double>(x[i + l]);
      lanes[static_cast<std::size_t>(l)] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) {
    sum += lane;
  }
  for (; i < n; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return sum;
}

POPRUN_SIMD void add_squares(const float* __restrict x, std::int64_t n, double* __restrict sums) {
  for (std::int64_t i = 0; i < n; ++i) {
    sums[i] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
}

/// Sets u = factor * g * by, element by element.
POPRUN_SIMD void scale_row(const float* __restrict g, const float* __restrict by, float factor, std::int64_t n,
                           float* __restrict u) {
  for (std::int64_t i = 0; i < n; ++i) {
    u[i] = factor * g[i] * by[i];
  }
}

/// Updates w by a step of `rate` along `clipped` times u, with weight decay.
POPRUN_SIMD void descend(const float* __restrict u, float rate, float clipped, float weight_decay, std::int64_t n,
                         float* __restrict w) {
  for (std::int64_t i = 0; i < n; ++i) {
    w[i] -= rate * (clipped * u[i] + weight_decay * w[i]);
  }
}

class AdafactorKernel final : public Kernel {
 public:
  explicit AdafactorKernel(const Signature& s)
      : factored_(s.inputs[0].shape.size() >= 2),
        n_(s.inputs[0].elements()),
        R_(factored_ ? s.inputs[0].shape[s.inputs[0].shape.size() - 2] : 1),
        C_(factored_ ? s.inputs[0].shape.back() : n_),
        scale_(update_rule::f32(s, "scale")),
        weight_decay_(update_rule::f32(s, "weight_decay")),
        epsilon_(s.attributes.real(kEpsilon)),
        threshold_(s.attributes.real(kThreshold)),
        exponent_(s.attributes.real(kExponent)) {}

  void run(const Operands& t) override {
    const std::size_t rate = factored_ ? 4 : 3;
    const auto scale = update_rule::scale_of(scale_, t, rate + 2);
    if (!scale || n_ == 0) {
      return;
    }
    G_scale_ = *scale;
    rest_ = std::pow(static_cast<double>(*t.input_f32(rate + 1)), -exponent_);
    u_ = reinterpret_cast<float*>(t.scratch);                  // NOLINT: n floats, then C floats, then C doubles.
    factors_ = u_ + padded(n_);                                // NOLINT
    sums_ = reinterpret_cast<double*>(factors_ + padded(C_));  // NOLINT
    const float* g = t.input_f32(1);
    if (factored_) {
      for (std::int64_t k = 0; k < n_ / (R_ * C_); ++k) {
        factored(g + k * R_ * C_, t.output_f32(1) + k * R_, t.output_f32(2) + k * C_, u_ + k * R_ * C_);
      }
    } else {
      vector(g, t.output_f32(1));
    }
    const double rms = std::sqrt(sum_of_squares(u_, n_) / static_cast<double>(n_));
    const auto clipped = static_cast<float>(1 / std::max(1.0, rms / threshold_));
    descend(u_, *t.input_f32(rate), clipped, weight_decay_, n_, t.output_f32(0));
  }

  [[nodiscard]] Bytes scratch() const override { return Bytes{4 * padded(n_) + 12 * padded(C_)}; }

 private:
  /// Returns n, rounded up so that the next part is aligned to 64 bytes.
  static std::int64_t padded(std::int64_t n) { return (n + 15) / 16 * 16; }

  /// Returns the running mean after a step whose mean of squares is `mean`.
  [[nodiscard]] float moved(float before, double mean) const {
    return static_cast<float>((1 - rest_) * static_cast<double>(before) + rest_ * (mean + epsilon_));
  }

  void factored(const float* g, float* row, float* column, float* u) {
    const double squared_scale = static_cast<double>(G_scale_) * static_cast<double>(G_scale_);
    std::fill_n(sums_, C_, 0.0);
    double of_rows = 0;
    for (std::int64_t r = 0; r < R_; ++r) {
      row[r] = moved(row[r], squared_scale * sum_of_squares(g + r * C_, C_) / static_cast<double>(C_));
      of_rows += static_cast<double>(row[r]);
      add_squares(g + r * C_, C_, sums_);
    }
    for (std::int64_t c = 0; c < C_; ++c) {
      column[c] = moved(column[c], squared_scale * sums_[c] / static_cast<double>(R_));
      factors_[c] = static_cast<float>(1 / std::sqrt(static_cast<double>(column[c])));
    }
    const double mean = of_rows / static_cast<double>(R_);
    for (std::int64_t r = 0; r < R_; ++r) {
      const auto factor = static_cast<float>(G_scale_ / std::sqrt(static_cast<double>(row[r]) / mean));
      scale_row(g + r * C_, factors_, factor, C_, u + r * C_);
    }
  }

  void vector(const float* g, float* v) {
    for (std::int64_t i = 0; i < n_; ++i) {
      const double G = static_cast<double>(G_scale_) * static_cast<double>(g[i]);
      v[i] = moved(v[i], G * G);
      u_[i] = static_cast<float>(G / std::sqrt(static_cast<double>(v[i])));
    }
  }

  bool factored_;
  std::int64_t n_;
  std::int64_t R_;
  std::int64_t C_;
  float scale_;
  float weight_decay_;
  double epsilon_;
  double threshold_;
  double exponent_;

  // The current run's.
  float G_scale_ = 0;
  double rest_ = 0;  ///< 1 - beta.
  float* u_ = nullptr;
  float* factors_ = nullptr;
  double* sums_ = nullptr;
};

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return std::make_unique<AdafactorKernel>(s);
}

/// Counts a square and two additions for the means, a product of three for u, two for its mean square and four for w.
/// The operations are those of Hugging Face's Adafactor on a matrix: the scale, the squares (two), each running mean
/// (three and a sum), the factors (four), u (two), its norm (three), the clipping (two) and w (four).
Work work(const Signature& s) {
  return update_rule::work(s, 12, 26);
}

}  // namespace

Optimizer optimizer() {
  return {.rule = {kKind, shape, nullptr, work, numerics},
          .states = {{"row", /*may_be_half=*/false, row_shape},
                     {"column", /*may_be_half=*/false, column_shape},
                     {"v", /*may_be_half=*/false, vector_shape}},
          .counts_updates = true,
          .hyper_parameters = {
              {kEpsilon, "1e-30", "Added to the squared gradient", {{0, 1, false}}},
              {kThreshold, "1", "Largest root mean square of an update, before the learning rate", {{0, 1e6, false}}},
              {kExponent,
               "0.8",
               "X in the decay 1 - t^-X of the running means of the squared gradient in step t",
               {{0, 1, false}}}}};
}

}  // namespace poprun::optimizers::adafactor
