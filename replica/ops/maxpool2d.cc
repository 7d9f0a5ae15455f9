#include <algorithm>
#include <cstdint>

#include "replica/ops/operator.h"
#include "replica/ops/simd.h"

/// Two-dimensional max pooling without padding.
///
///   N  images    C  channels    H, W  input image    Y, X  output image
///
///   maxpool2d(x [N,C,H,W]{nhwc}) window=[.,.] stride=[.,.]  ->  y [N,C,Y,X]{nhwc}
///
/// The gradient goes to the first element of a window, in row-major order, that equals the maximum.
/// Like Graphcore's popnn, it finds that element again from x and y instead of keeping indices.
namespace poprun {
namespace {

bool is_image(const TensorType& type) {
  return type.data == DataType::kF32 && type.shape.size() == 4 &&
         type.layout == Layout::kChannelsLast;
}

bool is_positive_pair(const Attributes& attributes, const std::string& name) {
  return attributes.has(name) && attributes.integers(name).size() == 2 &&
         std::ranges::min(attributes.integers(name)) > 0;
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() != 1 || !is_image(s.inputs[0]) || !is_positive_pair(s.attributes, "window") ||
      !is_positive_pair(s.attributes, "stride")) {
    return shape_error("maxpool2d", s,
                       "x f32[N,C,H,W]{nhwc}, window=[.,.] >= 1, stride=[.,.] >= 1");
  }
  TensorType y = s.inputs[0];
  for (std::size_t d = 0; d < 2; ++d) {
    const std::int64_t room = y.shape[d + 2] - s.attributes.integers("window")[d];
    if (room < 0) {
      return shape_error("maxpool2d", s, "a window no larger than the image");
    }
    y.shape[d + 2] = room / s.attributes.integers("stride")[d] + 1;
  }
  return std::vector{y};
}

struct Pooling {
  std::int64_t N, C, H, W, Y, X;
  std::int64_t window_y, window_x, stride_y, stride_x;

  Pooling(const TensorType& x, const TensorType& y, const Attributes& attributes)
      : N(x.shape[0]),
        C(x.shape[1]),
        H(x.shape[2]),
        W(x.shape[3]),
        Y(y.shape[2]),
        X(y.shape[3]),
        window_y(attributes.integers("window")[0]),
        window_x(attributes.integers("window")[1]),
        stride_y(attributes.integers("stride")[0]),
        stride_x(attributes.integers("stride")[1]) {}

  /// Offset of the C channels of one pixel of the input, or of the output.
  [[nodiscard]] std::int64_t in(std::int64_t n, std::int64_t h, std::int64_t w) const {
    return ((n * H + h) * W + w) * C;
  }
  [[nodiscard]] std::int64_t out(std::int64_t n, std::int64_t y, std::int64_t x) const {
    return ((n * Y + y) * X + x) * C;
  }
};

POPRUN_SIMD void take_larger(const float* __restrict x, float* __restrict y, std::int64_t C) {
  for (std::int64_t c = 0; c < C; ++c) {
    y[c] = x[c] > y[c] ? x[c] : y[c];
  }
}

void forward(const Pooling& p, const float* x, float* y) {
  for (std::int64_t n = 0; n < p.N; ++n) {
    for (std::int64_t i = 0; i < p.Y; ++i) {
      for (std::int64_t j = 0; j < p.X; ++j) {
        float* maximum = y + p.out(n, i, j);
        std::copy_n(x + p.in(n, i * p.stride_y, j * p.stride_x), p.C, maximum);
        for (std::int64_t a = 0; a < p.window_y; ++a) {
          for (std::int64_t b = a == 0 ? 1 : 0; b < p.window_x; ++b) {
            take_larger(x + p.in(n, i * p.stride_y + a, j * p.stride_x + b), maximum, p.C);
          }
        }
      }
    }
  }
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([p = Pooling(s.inputs[0], s.outputs[0], s.attributes)](const Operands& t) {
    forward(p, t.input_f32(0), t.output_f32(0));
  });
}

Work work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  const auto& window = s.attributes.integers("window");
  work.vector_flops = s.outputs.back().elements() * window[0] * window[1];
  return work;
}

/// maxpool2d_gradient(x, y, dy)  ->  dx
Result<std::vector<TensorType>> gradient_shape(const Signature& s) {
  if (s.inputs.size() != 3 || !is_image(s.inputs[0]) || s.inputs[1] != s.inputs[2]) {
    return shape_error("maxpool2d_gradient", s, "x, y and dy");
  }
  return std::vector{s.inputs[0]};
}

/// Channels whose maximum is this pixel, and was no earlier one, get the gradient. `open` is all
/// ones where no earlier pixel of the window was the maximum.
POPRUN_SIMD void give_to_maximum(const float* __restrict x, const float* __restrict y,
                                 const float* __restrict dy, float* __restrict dx,
                                 std::uint32_t* __restrict open, std::int64_t C) {
  for (std::int64_t c = 0; c < C; ++c) {
    const std::uint32_t here = x[c] == y[c] ? open[c] : 0;
    dx[c] += here != 0 ? dy[c] : 0.0F;
    open[c] ^= here;
  }
}

void backward(const Pooling& p, const float* x, const float* y, const float* dy, float* dx,
              std::uint32_t* open) {
  std::fill_n(dx, p.N * p.H * p.W * p.C, 0.0F);
  for (std::int64_t n = 0; n < p.N; ++n) {
    for (std::int64_t i = 0; i < p.Y; ++i) {
      for (std::int64_t j = 0; j < p.X; ++j) {
        std::fill_n(open, p.C, ~std::uint32_t{0});
        const std::int64_t o = p.out(n, i, j);
        for (std::int64_t a = 0; a < p.window_y; ++a) {
          for (std::int64_t b = 0; b < p.window_x; ++b) {
            const std::int64_t pixel = p.in(n, i * p.stride_y + a, j * p.stride_x + b);
            give_to_maximum(x + pixel, y + o, dy + o, dx + pixel, open, p.C);
          }
        }
      }
    }
  }
}

std::unique_ptr<Kernel> gradient_numerics(const Signature& s) {
  class Gradient final : public Kernel {
   public:
    explicit Gradient(const Pooling& p) : p_(p), open_(static_cast<std::size_t>(p.C)) {}
    void run(const Operands& t) override {
      backward(p_, t.input_f32(0), t.input_f32(1), t.input_f32(2), t.output_f32(0), open_.data());
    }

   private:
    Pooling p_;
    std::vector<std::uint32_t> open_;
  };
  return std::make_unique<Gradient>(Pooling(s.inputs[0], s.inputs[1], s.attributes));
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  d.set_input_gradient(
      0, d.add("maxpool2d_gradient", {op.inputs[0], op.outputs[0], d.output_gradient(0)},
               op.attributes, {0})[0]);
}

}  // namespace

std::vector<Operator> maxpool2d_operators() {
  return {{"maxpool2d", shape, gradient, work, numerics},
          {"maxpool2d_gradient", gradient_shape, nullptr, work, gradient_numerics}};
}

}  // namespace poprun
