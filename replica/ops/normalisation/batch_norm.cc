#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/simd.h"

/// Batch normalisation brings every channel to mean 0 and variance 1, then scales and shifts it.
///
///   C  channels    M  elements per channel: N images of H x W, or N rows
///
///   batch_norm_training(x, w [C], b [C]) eps=.  ->  y, mean [C], variance [C]
///   batch_norm_inference(x, w, b, mean, variance) eps=.  ->  y
///   batch_norm_update(running_mean [C], running_variance [C], mean, variance) momentum=.
///       elements=M  ->  running_mean, running_variance in place
///
/// If a group of replicas shares statistics, this takes three operations, with an all-reduce after the first:
///
///   batch_norm_moments(x)  ->  moments [2,C], the means of x and of x^2
///   batch_norm_statistics(moments)  ->  mean, variance
///   batch_norm_inference(x, w, b, mean, variance) eps=.  ->  y
///
///   y = (x - mean) / sqrt(variance + eps) * w + b,  x and y f32[N,C,H,W]{nhwc} or f32[N,C]
///   running = (1 - momentum) * running + momentum * (mean, or variance * M / (M - 1))
///
/// This is torch.nn.BatchNorm2d. Training normalises with the biased variance of the batch (divided by M) and records
/// the unbiased variance. A group has M elements on all its replicas together. Each channel is summed row by row, in
/// double. The gradient of the training form passes through mean and variance; that of the inference form does not.
namespace poprun::ops::batch_norm {
namespace {

TensorType channels(const TensorType& x) {
  return {DataType::kF32, {x.shape[1]}, Layout::kRowMajor};
}

/// Returns whether the C channels of a pixel or row are contiguous, as in both forms of x.
bool has_channels_inside(const TensorType& x) {
  return x.data == DataType::kF32 &&
         ((x.shape.size() == 4 && x.layout == Layout::kChannelsLast) || x.shape.size() == 2);
}

/// Returns M, the number of rows of x viewed as a matrix [M, C].
std::int64_t rows_of(const TensorType& x) {
  return x.elements() / x.shape[1];
}

/// Returns whether x is followed by `count` tensors f32[C], and eps is given and positive.
bool fits(const Signature& s, std::size_t count) {
  return s.inputs.size() == count + 1 && has_channels_inside(s.inputs[0]) && s.inputs[0].elements() > 0 &&
         std::all_of(s.inputs.begin() + 1, s.inputs.end(),
                     [&](const TensorType& t) { return t == channels(s.inputs[0]); }) &&
         s.attributes.has("eps") && s.attributes.real("eps") > 0;
}

struct Pass {
  std::int64_t flops;    ///< Operations per element of x.
  std::int64_t vectors;  ///< Vectors [C] that tiles exchange.
  std::int64_t compute_sets;
};

/// Returns the work of an operation that reads or writes a tensor of the size of x `count` times.
Work passes(const Signature& s, std::int64_t count, const Pass& pass) {
  Work work = elementwise_work(s, 0);
  work.memory_traffic = s.inputs[0].bytes() * count;
  work.vector_flops = pass.flops * s.inputs[0].elements();
  work.exchanged = channels(s.inputs[0]).bytes() * pass.vectors;
  work.compute_sets = pass.compute_sets;
  return work;
}

/// Per-channel values that one run keeps in scratch.
struct Channels {
  double* sum;
  double* products;
  float* scale;
  float* shift;
  float* slope;

  Channels(std::byte* scratch, std::int64_t C)
      : sum(reinterpret_cast<double*>(scratch)),  // NOLINT: 64-byte aligned scratch.
        products(sum + C),
        scale(reinterpret_cast<float*>(products + C)),  // NOLINT: 64-byte aligned scratch.
        shift(scale + C),
        slope(shift + C) {}

  static Bytes size(std::int64_t C) { return Bytes{C * 28}; }
};

/// Makes a kernel that calls `run(operands, channels)` with scratch for C channels.
template <typename Run>
std::unique_ptr<Kernel> channel_kernel(std::int64_t C, Run run) {
  class ChannelKernel final : public Kernel {
   public:
    ChannelKernel(std::int64_t channels, Run f) : channels_(channels), run_(std::move(f)) {}
    void run(const Operands& t) override { run_(t, Channels(t.scratch, channels_)); }
    [[nodiscard]] Bytes scratch() const override { return Channels::size(channels_); }

   private:
    std::int64_t channels_;
    Run run_;
  };
  return std::make_unique<ChannelKernel>(C, std::move(run));
}

/// Adds x to sum[c] and x^2 to squares[c] for all rows.
POPRUN_SIMD void add_moments(const float* __restrict x, std::int64_t M, std::int64_t C, double* __restrict sum,
                             double* __restrict squares) {
  for (std::int64_t m = 0; m < M; ++m) {
    for (std::int64_t c = 0; c < C; ++c) {
      const auto value = static_cast<double>(x[m * C + c]);
      sum[c] += value;
      squares[c] += value * value;
    }
  }
}

/// Computes y = (x - centre) * scale + shift.
POPRUN_SIMD void apply(const float* x, std::int64_t M, std::int64_t C, const float* __restrict centre,
                       const float* __restrict scale, const float* __restrict shift, float* y) {
  for (std::int64_t m = 0; m < M; ++m) {
    for (std::int64_t c = 0; c < C; ++c) {
      y[m * C + c] = (x[m * C + c] - centre[c]) * scale[c] + shift[c];
    }
  }
}

Result<std::vector<TensorType>> training_shape(const Signature& s) {
  if (!fits(s, 2)) {
    return shape_error(kinds::kBatchNormTraining, s, "x f32[N,C,H,W]{nhwc} or f32[N,C], w f32[C], b f32[C], eps > 0");
  }
  if (rows_of(s.inputs[0]) < 2) {
    return fail(ErrorCode::kUsage, fmt::format("a batch norm needs at least two elements per channel, but {} has one; "
                                               "use a larger data.micro-batch-size, larger images, or "
                                               "model.normalisation = layer",
                                               to_text(s.inputs[0])));
  }
  return std::vector{s.inputs[0], s.inputs[1], s.inputs[1]};
}

std::unique_ptr<Kernel> training_numerics(const Signature& s) {
  const std::int64_t C = s.inputs[0].shape[1];
  return channel_kernel(
      C, [C, M = rows_of(s.inputs[0]), eps = s.attributes.real("eps")](const Operands& t, const Channels& k) {
        const auto count = static_cast<double>(M);
        std::fill_n(k.sum, 2 * C, 0.0);
        add_moments(t.input_f32(0), M, C, k.sum, k.products);
        for (std::int64_t c = 0; c < C; ++c) {
          const double mean = k.sum[c] / count;
          const double variance = std::max(0.0, k.products[c] / count - mean * mean);
          t.output_f32(1)[c] = static_cast<float>(mean);
          t.output_f32(2)[c] = static_cast<float>(variance);
          k.scale[c] = static_cast<float>(static_cast<double>(t.input_f32(1)[c]) / std::sqrt(variance + eps));
        }
        apply(t.input_f32(0), M, C, t.output_f32(1), k.scale, t.input_f32(2), t.output_f32(0));
      });
}

/// Counts seven operations per element, and the six times that popnn's passes (poplibs, lib/popnn/BatchNorm.cpp) read
/// or write a tensor of x's size: the mean and the mean square read x, and the factor and the addend each read and
/// write such a tensor.
Work training_work(const Signature& s) {
  return passes(s, 6, {.flops = 7, .vectors = 4, .compute_sets = 3});  // Partial sums, totals and results.
}

TensorType both(const TensorType& x) {
  return {DataType::kF32, {2, x.shape[1]}, Layout::kRowMajor};
}

Result<std::vector<TensorType>> moments_shape(const Signature& s) {
  if (s.inputs.size() != 1 || !has_channels_inside(s.inputs[0]) || s.inputs[0].elements() == 0) {
    return shape_error(kinds::kBatchNormMoments, s, "x f32[N,C,H,W]{nhwc} or f32[N,C]");
  }
  return std::vector{both(s.inputs[0])};
}

std::unique_ptr<Kernel> moments_numerics(const Signature& s) {
  const std::int64_t C = s.inputs[0].shape[1];
  return channel_kernel(C, [C, M = rows_of(s.inputs[0])](const Operands& t, const Channels& k) {
    std::fill_n(k.sum, 2 * C, 0.0);
    add_moments(t.input_f32(0), M, C, k.sum, k.products);
    for (std::int64_t c = 0; c < C; ++c) {
      t.output_f32(0)[c] = static_cast<float>(k.sum[c] / static_cast<double>(M));
      t.output_f32(0)[C + c] = static_cast<float>(k.products[c] / static_cast<double>(M));
    }
  });
}

Work moments_work(const Signature& s) {
  return passes(s, 2, {.flops = 3, .vectors = 2, .compute_sets = 2});
}

Result<std::vector<TensorType>> statistics_shape(const Signature& s) {
  if (s.inputs.size() != 1 || s.inputs[0].shape.size() != 2 || s.inputs[0].shape[0] != 2 ||
      s.inputs[0].data != DataType::kF32) {
    return shape_error(kinds::kBatchNormStatistics, s, "moments f32[2,C]");
  }
  return std::vector{channels(s.inputs[0]), channels(s.inputs[0])};
}

std::unique_ptr<Kernel> statistics_numerics(const Signature& s) {
  return make_kernel([C = s.inputs[0].shape[1]](const Operands& t) {
    for (std::int64_t c = 0; c < C; ++c) {
      const auto mean = static_cast<double>(t.input_f32(0)[c]);
      t.output_f32(0)[c] = t.input_f32(0)[c];
      t.output_f32(1)[c] = static_cast<float>(std::max(0.0, static_cast<double>(t.input_f32(0)[C + c]) - mean * mean));
    }
  });
}

Work statistics_work(const Signature& s) {
  return elementwise_work(s, 2);
}

Result<std::vector<TensorType>> inference_shape(const Signature& s) {
  if (!fits(s, 4)) {
    return shape_error(kinds::kBatchNormInference, s,
                       "x f32[N,C,H,W]{nhwc} or f32[N,C]; w, b, mean, variance f32[C]; eps > 0");
  }
  return std::vector{s.inputs[0]};
}

std::unique_ptr<Kernel> inference_numerics(const Signature& s) {
  const std::int64_t C = s.inputs[0].shape[1];
  return channel_kernel(
      C, [C, M = rows_of(s.inputs[0]), eps = s.attributes.real("eps")](const Operands& t, const Channels& k) {
        for (std::int64_t c = 0; c < C; ++c) {
          k.scale[c] = static_cast<float>(static_cast<double>(t.input_f32(1)[c]) /
                                          std::sqrt(static_cast<double>(t.input_f32(4)[c]) + eps));
        }
        apply(t.input_f32(0), M, C, t.input_f32(3), k.scale, t.input_f32(2), t.output_f32(0));
      });
}

Work inference_work(const Signature& s) {
  return elementwise_work(s, 3);
}

Result<std::vector<TensorType>> update_shape(const Signature& s) {
  const bool equal =
      s.inputs.size() == 4 && s.inputs[0].data == DataType::kF32 &&
      std::all_of(s.inputs.begin(), s.inputs.end(), [&](const TensorType& t) { return t == s.inputs[0]; });
  if (!equal || !s.attributes.has("momentum") || !s.attributes.has("elements") ||
      s.attributes.integer("elements") < 2) {
    return shape_error(kinds::kBatchNormUpdate, s,
                       "running mean, running variance, mean and variance f32[C], momentum and "
                       "elements >= 2");
  }
  return std::vector{s.inputs[0], s.inputs[0]};
}

std::unique_ptr<Kernel> update_numerics(const Signature& s) {
  const auto M = static_cast<double>(s.attributes.integer("elements"));
  const double momentum = s.attributes.real("momentum");
  return make_kernel([C = s.inputs[0].elements(), keep = static_cast<float>(1.0 - momentum),
                      take = static_cast<float>(momentum),
                      take_unbiased = static_cast<float>(momentum * M / (M - 1.0))](const Operands& t) {
    for (std::int64_t c = 0; c < C; ++c) {
      t.output_f32(0)[c] = keep * t.output_f32(0)[c] + take * t.input_f32(2)[c];
      t.output_f32(1)[c] = keep * t.output_f32(1)[c] + take_unbiased * t.input_f32(3)[c];
    }
  });
}

Work update_work(const Signature& s) {
  return elementwise_work(s, 3);
}

/// batch_norm_training_gradient and batch_norm_inference_gradient
///   (x, w [C], mean [C], variance [C], dy) eps=.  ->  dx, dw [C], db [C]
Result<std::vector<TensorType>> gradient_shape(const Signature& s) {
  Signature without_dy = s;
  if (!s.inputs.empty()) {
    without_dy.inputs.pop_back();
  }
  if (!fits(without_dy, 3) || s.inputs[4] != s.inputs[0]) {
    return shape_error("the gradient of batch_norm", s, "x, w, mean, variance, dy and eps > 0");
  }
  return std::vector{s.inputs[0], s.inputs[1], s.inputs[1]};
}

/// Adds dy to sum[c] and dy * (x - mean) to products[c] for all rows.
POPRUN_SIMD void add_gradient_moments(const float* __restrict x, const float* __restrict dy,
                                      const float* __restrict mean, std::int64_t M, std::int64_t C,
                                      double* __restrict sum, double* __restrict products) {
  for (std::int64_t m = 0; m < M; ++m) {
    for (std::int64_t c = 0; c < C; ++c) {
      const auto gradient = static_cast<double>(dy[m * C + c]);
      sum[c] += gradient;
      products[c] += gradient * static_cast<double>(x[m * C + c] - mean[c]);
    }
  }
}

/// Computes dx = scale * dy + slope * (x - mean) + shift.
POPRUN_SIMD void combine(const float* __restrict x, const float* __restrict dy, const float* __restrict mean,
                         std::int64_t M, std::int64_t C, const Channels& k, float* __restrict dx) {
  const float* __restrict scale = k.scale;
  const float* __restrict shift = k.shift;
  const float* __restrict slope = k.slope;
  for (std::int64_t m = 0; m < M; ++m) {
    for (std::int64_t c = 0; c < C; ++c) {
      dx[m * C + c] = scale[c] * dy[m * C + c] + slope[c] * (x[m * C + c] - mean[c]) + shift[c];
    }
  }
}

/// Computes db = sum dy, dw = sum dy X and dx = w r (dy - through * (db + X dw) / M), with r = 1 / sqrt(variance + eps)
/// and X = (x - mean) r. `through` is 1 if mean and variance depend on x, else 0.
std::unique_ptr<Kernel> gradient_numerics(const Signature& s, double through) {
  const std::int64_t C = s.inputs[0].shape[1];
  return channel_kernel(
      C, [C, M = rows_of(s.inputs[0]), eps = s.attributes.real("eps"), through](const Operands& t, const Channels& k) {
        const float* mean = t.input_f32(2);
        std::fill_n(k.sum, 2 * C, 0.0);
        add_gradient_moments(t.input_f32(0), t.input_f32(4), mean, M, C, k.sum, k.products);
        for (std::int64_t c = 0; c < C; ++c) {
          const double r = 1.0 / std::sqrt(static_cast<double>(t.input_f32(3)[c]) + eps);
          const double scale = static_cast<double>(t.input_f32(1)[c]) * r;
          const double share = through * scale / static_cast<double>(M);
          t.output_f32(1)[c] = static_cast<float>(k.products[c] * r);
          t.output_f32(2)[c] = static_cast<float>(k.sum[c]);
          k.scale[c] = static_cast<float>(scale);
          k.slope[c] = static_cast<float>(-share * r * r * k.products[c]);
          k.shift[c] = static_cast<float>(-share * k.sum[c]);
        }
        combine(t.input_f32(0), t.input_f32(4), mean, M, C, k, t.output_f32(0));
      });
}

std::unique_ptr<Kernel> training_gradient_numerics(const Signature& s) {
  return gradient_numerics(s, 1.0);
}

std::unique_ptr<Kernel> inference_gradient_numerics(const Signature& s) {
  return gradient_numerics(s, 0.0);
}

/// Counts popnn's passes, each of which reads or writes a tensor of the size of x: whitening x (4), its product with dy
/// (3), the sums of dy and of the product, which load 16 B per cycle (1), dy minus both means (5), and the factor (2).
Work gradient_work(const Signature& s) {
  return passes(s, 15, {.flops = 9, .vectors = 4, .compute_sets = 3});
}

/// If a group of replicas shares its statistics, two operations divide the work of the gradient. Between them, an
/// all-reduce averages `sums` over the group.
///
///   batch_norm_sums(x, mean, variance, dy) eps=.  ->  dw [C], db [C], sums [2,C], a copy of db and dw
///   batch_norm_group_gradient(x, w, mean, variance, dy, sums) eps=.  ->  dx
Result<std::vector<TensorType>> sums_shape(const Signature& s) {
  if (s.inputs.size() != 4 || !has_channels_inside(s.inputs[0]) || s.inputs[0].elements() == 0 ||
      s.inputs[1] != channels(s.inputs[0]) || s.inputs[2] != s.inputs[1] || s.inputs[3] != s.inputs[0]) {
    return shape_error(kinds::kBatchNormSums, s, "x, mean, variance, dy and eps > 0");
  }
  return std::vector{s.inputs[1], s.inputs[1], both(s.inputs[0])};
}

std::unique_ptr<Kernel> sums_numerics(const Signature& s) {
  const std::int64_t C = s.inputs[0].shape[1];
  return channel_kernel(
      C, [C, M = rows_of(s.inputs[0]), eps = s.attributes.real("eps")](const Operands& t, const Channels& k) {
        std::fill_n(k.sum, 2 * C, 0.0);
        add_gradient_moments(t.input_f32(0), t.input_f32(3), t.input_f32(1), M, C, k.sum, k.products);
        for (std::int64_t c = 0; c < C; ++c) {
          const double r = 1.0 / std::sqrt(static_cast<double>(t.input_f32(2)[c]) + eps);
          t.output_f32(0)[c] = static_cast<float>(k.products[c] * r);
          t.output_f32(1)[c] = static_cast<float>(k.sum[c]);
          t.output_f32(2)[c] = t.output_f32(1)[c];
          t.output_f32(2)[C + c] = t.output_f32(0)[c];
        }
      });
}

Work sums_work(const Signature& s) {
  return passes(s, 8, {.flops = 4, .vectors = 4, .compute_sets = 2});
}

Result<std::vector<TensorType>> group_gradient_shape(const Signature& s) {
  Signature without_sums = s;
  if (!s.inputs.empty()) {
    without_sums.inputs.pop_back();
  }
  const auto others = gradient_shape(without_sums);
  if (!others || s.inputs.back() != both(s.inputs[0])) {
    return shape_error(kinds::kBatchNormGroupGradient, s, "x, w, mean, variance, dy, sums f32[2,C] and eps > 0");
  }
  return std::vector{s.inputs[0]};
}

/// Computes dx as gradient_numerics does, from sums of all replicas.
std::unique_ptr<Kernel> group_gradient_numerics(const Signature& s) {
  const std::int64_t C = s.inputs[0].shape[1];
  return channel_kernel(
      C, [C, M = rows_of(s.inputs[0]), eps = s.attributes.real("eps")](const Operands& t, const Channels& k) {
        for (std::int64_t c = 0; c < C; ++c) {
          const double r = 1.0 / std::sqrt(static_cast<double>(t.input_f32(3)[c]) + eps);
          const double scale = static_cast<double>(t.input_f32(1)[c]) * r;
          const double share = scale / static_cast<double>(M);
          k.scale[c] = static_cast<float>(scale);
          k.slope[c] = static_cast<float>(-share * r * static_cast<double>(t.input_f32(5)[C + c]));
          k.shift[c] = static_cast<float>(-share * static_cast<double>(t.input_f32(5)[c]));
        }
        combine(t.input_f32(0), t.input_f32(4), t.input_f32(2), M, C, k, t.output_f32(0));
      });
}

Work group_gradient_work(const Signature& s) {
  return passes(s, 7, {.flops = 5, .vectors = 0, .compute_sets = 1});
}

void set_gradients(Differentiator& d, const std::string& kind, TensorId mean, TensorId variance) {
  const Operation& op = d.operation();
  const auto gradients =
      d.add(kind, {op.inputs[0], op.inputs[1], mean, variance, d.output_gradient(0)}, op.attributes, {0, 1, 2});
  for (std::size_t input = 0; input < 3; ++input) {
    d.set_input_gradient(input, gradients[input]);
  }
}

void training_gradient(Differentiator& d) {
  const std::vector<TensorId> outputs = d.operation().outputs;
  set_gradients(d, kinds::kBatchNormTrainingGradient, outputs[1], outputs[2]);
}

void inference_gradient(Differentiator& d) {
  const std::vector<TensorId> inputs = d.operation().inputs;
  set_gradients(d, "batch_norm_inference_gradient", inputs[3], inputs[4]);
}

}  // namespace

std::vector<Operator> operators() {
  return {
      {kinds::kBatchNormTraining, training_shape, training_gradient, training_work, training_numerics, nullptr, nullptr,
       nullptr, 1},
      in_place({kinds::kBatchNormInference, inference_shape, inference_gradient, inference_work, inference_numerics},
               {0}),
      {kinds::kBatchNormUpdate, update_shape, nullptr, update_work, update_numerics},
      {kinds::kBatchNormMoments, moments_shape, nullptr, moments_work, moments_numerics, nullptr, nullptr, nullptr, 0},
      {kinds::kBatchNormStatistics, statistics_shape, nullptr, statistics_work, statistics_numerics, nullptr, nullptr,
       nullptr, 0},
      {kinds::kBatchNormSums, sums_shape, nullptr, sums_work, sums_numerics, nullptr, nullptr, nullptr, 2},
      {kinds::kBatchNormGroupGradient, group_gradient_shape, nullptr, group_gradient_work, group_gradient_numerics},
      {kinds::kBatchNormTrainingGradient, gradient_shape, nullptr, gradient_work, training_gradient_numerics},
      {"batch_norm_inference_gradient", gradient_shape, nullptr, gradient_work, inference_gradient_numerics},
  };
}

}  // namespace poprun::ops::batch_norm
