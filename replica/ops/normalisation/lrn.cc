#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "replica/ops/face/operator.h"
#include "replica/ops/face/shaped.h"
#include "replica/ops/face/simd.h"

/// Local response normalisation across channels (Krizhevsky, Sutskever and Hinton, "ImageNet classification with deep
/// convolutional neural networks", 2012, section 3.3).
///
///   M  pixels: images, rows and columns, flattened    C  channels, contiguous in a pixel
///
///   lrn(x [N,C,H,W]{nhwc}) size=. alpha=. beta=. bias=.  ->  y
///
///   y[c] = x[c] / s[c]^beta,  s[c] = bias + alpha / size * sum of x[i]^2 over the window of c,
///   i from c - (size - 1) / 2 to c + size / 2, both rounded down, limited to existing channels
///
/// This is ONNX's definition, and PyTorch's for odd sizes. We do not use oneDNN, because it treats an even size as the
/// next smaller odd size. Windows are summed in channel order.
///
///   dx[c] = dy[c] s[c]^-beta - 2 alpha beta / size x[c] * sum of dy[i] x[i] s[i]^(-beta-1) over
///           the i whose windows contain c
namespace poprun::ops::lrn {
namespace {

struct Lrn {
  std::int64_t M, C;
  std::int64_t before, behind;  ///< Number of channels before and after a window's centre.
  float share;                  ///< alpha / size
  float beta;
  float bias;

  explicit Lrn(const Signature& s)
      : M(s.inputs[0].elements() / s.inputs[0].shape[1]),
        C(s.inputs[0].shape[1]),
        before((s.attributes.integer("size") - 1) / 2),
        behind(s.attributes.integer("size") / 2),
        share(static_cast<float>(s.attributes.real("alpha") / static_cast<double>(s.attributes.integer("size")))),
        beta(static_cast<float>(s.attributes.real("beta"))),
        bias(static_cast<float>(s.attributes.real("bias"))) {}
};

bool fits(const Signature& s, std::size_t inputs) {
  return s.inputs.size() == inputs && is_image(s.inputs[0]) && s.inputs.back() == s.inputs[0] &&
         s.inputs[0].elements() > 0 && s.attributes.has("size") && s.attributes.integer("size") >= 1 &&
         s.attributes.has("alpha") && s.attributes.has("beta") && s.attributes.has("bias");
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (!fits(s, 1)) {
    return shape_error("lrn", s, "x f32[N,C,H,W]{nhwc}, size >= 1, alpha, beta and bias");
  }
  return std::vector{s.inputs[0]};
}

/// Sets sums[c] to the sum of values[i] for i from c - before to c + behind.
POPRUN_SIMD void window_sums(const float* __restrict values, std::int64_t C, std::int64_t before, std::int64_t behind,
                             float* __restrict sums) {
  std::fill_n(sums, C, 0.0F);
  for (std::int64_t step = -before; step <= behind; ++step) {
    const std::int64_t begin = std::max<std::int64_t>(0, -step);
    const std::int64_t end = std::min(C, C - step);
    for (std::int64_t c = begin; c < end; ++c) {
      sums[c] += values[c + step];
    }
  }
}

/// Computes result[c] = s[c]^-beta. AlexNet's beta of 3/4 needs only two square roots, which vectorise.
POPRUN_SIMD void powers(const float* __restrict s, std::int64_t C, float beta, float* __restrict result) {
  if (beta == 0.75F) {
    for (std::int64_t c = 0; c < C; ++c) {
      const float root = std::sqrt(s[c]);
      result[c] = 1.0F / (root * std::sqrt(root));
    }
  } else {
    for (std::int64_t c = 0; c < C; ++c) {
      result[c] = std::pow(s[c], -beta);
    }
  }
}

/// Intermediate values for each channel of one pixel.
struct Pixel {
  std::vector<float> terms, s, power;

  explicit Pixel(std::int64_t C) : terms(static_cast<std::size_t>(C)), s(terms.size()), power(terms.size()) {}

  void normalise(const Lrn& z, const float* x) {
    for (std::size_t c = 0; c < terms.size(); ++c) {
      terms[c] = x[c] * x[c];
    }
    window_sums(terms.data(), z.C, z.before, z.behind, s.data());
    for (float& value : s) {
      value = z.bias + z.share * value;
    }
    powers(s.data(), z.C, z.beta, power.data());
  }
};

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const Lrn z(s);
  return make_kernel([z, pixel = Pixel(z.C)](const Operands& t) mutable {
    for (std::int64_t m = 0; m < z.M; ++m) {
      const float* x = t.input_f32(0) + m * z.C;
      float* y = t.output_f32(0) + m * z.C;
      pixel.normalise(z, x);
      for (std::int64_t c = 0; c < z.C; ++c) {
        y[c] = x[c] * pixel.power[static_cast<std::size_t>(c)];
      }
    }
  });
}

/// Counts a power as sixteen operations.
Work work(const Signature& s) {
  return elementwise_work(s, 20 + s.attributes.integer("size"));
}

/// lrn_gradient(x, dy) and lrn's attributes  ->  dx
Result<std::vector<TensorType>> gradient_shape(const Signature& s) {
  if (!fits(s, 2)) {
    return shape_error("lrn_gradient", s, "x and dy of the same type, and lrn's attributes");
  }
  return std::vector{s.inputs[0]};
}

std::unique_ptr<Kernel> gradient_numerics(const Signature& s) {
  const Lrn z(s);
  return make_kernel(
      [z, pixel = Pixel(z.C), sums = std::vector<float>(static_cast<std::size_t>(z.C))](const Operands& t) mutable {
        const float factor = 2.0F * z.share * z.beta;
        for (std::int64_t m = 0; m < z.M; ++m) {
          const float* x = t.input_f32(0) + m * z.C;
          const float* dy = t.input_f32(1) + m * z.C;
          float* dx = t.output_f32(0) + m * z.C;
          pixel.normalise(z, x);
          for (std::size_t c = 0; c < sums.size(); ++c) {
            pixel.terms[c] = dy[c] * x[c] * pixel.power[c] / pixel.s[c];
          }
          // The channels whose windows contain c form the mirrored window of c.
          window_sums(pixel.terms.data(), z.C, z.behind, z.before, sums.data());
          for (std::size_t c = 0; c < sums.size(); ++c) {
            dx[c] = dy[c] * pixel.power[c] - factor * x[c] * sums[c];
          }
        }
      });
}

Work gradient_work(const Signature& s) {
  return elementwise_work(s, 26 + 2 * s.attributes.integer("size"));
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  d.set_input_gradient(0, d.add("lrn_gradient", {op.inputs[0], d.output_gradient(0)}, op.attributes, {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {{"lrn", shape, gradient, work, numerics},
          {"lrn_gradient", gradient_shape, nullptr, gradient_work, gradient_numerics}};
}

}  // namespace poprun::ops::lrn
