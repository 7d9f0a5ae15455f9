#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "replica/ops/face/operator.h"
#include "replica/ops/face/shaped.h"
#include "replica/ops/face/simd.h"

/// Two-dimensional pooling.
///
///   N  images    C  channels    H, W  input image    Y, X  output image
///
///   maxpool2d(x [N,C,H,W]{nhwc}) window=[.,.] stride=[.,.] pad=[top,left,bottom,right] ceil=0|1
///       dilation=[.,.]  ->  y [N,C,Y,X]{nhwc};  -inf if a window has no element in the image
///   avgpool2d(x) with the same attributes, but count_pad=0|1 in place of dilation  ->  y;  the mean over
///       a window's elements inside the image or, with count_pad=1, inside the zero-padded image.
///       Windows of more than 1024 elements are summed in double to limit rounding errors.
///
/// Dilation d (default 1) puts a window's elements d pixels apart, so the window spans reach = (window - 1) d + 1
/// pixels. Y = (H + top + bottom - reach) / stride + 1, where the quotient is rounded down or, with ceil=1, up. As in
/// PyTorch and ONNX, a last window that would begin beyond the image is excluded. Global pooling uses a window as large
/// as the image.
///
/// The gradient of a maximum goes to the first element of the window, in row-major order, that equals it. Like
/// Graphcore's popnn, the operator finds that element again from x and y instead of storing indices.
namespace poprun::ops::pooling {
namespace {

bool has_geometry(const Attributes& attributes) {
  return are_integers(attributes, "window", 2, 1) && are_integers(attributes, "stride", 2, 1) &&
         are_integers(attributes, "pad", 4, 0) && attributes.has("ceil") &&
         (!attributes.has("dilation") || are_integers(attributes, "dilation", 2, 1));
}

Shape dilation_of(const Attributes& attributes) {
  return attributes.has("dilation") ? attributes.integers("dilation") : Shape{1, 1};
}

/// Returns the number of pixels that a window spans along dimension d.
std::int64_t reach_of(const Attributes& attributes, std::size_t d) {
  return (attributes.integers("window")[d] - 1) * dilation_of(attributes)[d] + 1;
}

constexpr std::string_view kNeeded =
    "x f32[N,C,H,W]{nhwc}, window=[.,.] >= 1 that fits into the padded image, "
    "stride=[.,.] >= 1, pad=[top,left,bottom,right] >= 0 and smaller than the window's span, "
    "ceil=0|1";

/// Returns the output size along dimension d of the image, or nothing if the window or the padding is too large.
std::optional<std::int64_t> output_size(const Attributes& attributes, std::int64_t size, std::size_t d) {
  const std::int64_t window = reach_of(attributes, d);
  const std::int64_t stride = attributes.integers("stride")[d];
  const std::int64_t before = attributes.integers("pad")[d];
  const std::int64_t behind = attributes.integers("pad")[d + 2];
  const std::int64_t room = size + before + behind - window;
  if (room < 0 || before >= window || behind >= window) {
    return std::nullopt;
  }
  if (attributes.integer("ceil") == 0) {
    return room / stride + 1;
  }
  const std::int64_t windows = (room + stride - 1) / stride + 1;
  return (windows - 1) * stride >= size + before ? windows - 1 : windows;
}

Result<std::vector<TensorType>> pooled(std::string_view kind, const Signature& s, std::string_view needed) {
  if (s.inputs.size() != 1 || !is_image(s.inputs[0]) || !has_geometry(s.attributes)) {
    return shape_error(kind, s, needed);
  }
  TensorType y = s.inputs[0];
  for (std::size_t d = 0; d < 2; ++d) {
    const auto size = output_size(s.attributes, y.shape[d + 2], d);
    if (!size) {
      return shape_error(kind, s, needed);
    }
    y.shape[d + 2] = *size;
  }
  return std::vector{y};
}

/// The range that one window covers along one dimension.
struct Range {
  std::int64_t begin;
  std::int64_t end;     ///< End of the elements inside the image. Only a dilated window can have no such element.
  std::int64_t step;    ///< Distance between the elements.
  std::int64_t padded;  ///< Number of elements inside the padded image.
};

struct Pooling {
  std::int64_t N, C, H, W, Y, X;
  Shape reach, stride, pad, dilation;

  Pooling(const TensorType& x, const TensorType& y, const Attributes& attributes)
      : N(x.shape[0]),
        C(x.shape[1]),
        H(x.shape[2]),
        W(x.shape[3]),
        Y(y.shape[2]),
        X(y.shape[3]),
        reach{reach_of(attributes, 0), reach_of(attributes, 1)},
        stride(attributes.integers("stride")),
        pad(attributes.integers("pad")),
        dilation(dilation_of(attributes)) {}

  [[nodiscard]] Range rows(std::int64_t y) const { return range(y, 0, H); }
  [[nodiscard]] Range columns(std::int64_t x) const { return range(x, 1, W); }

  /// Return the offset of a pixel's C channels in the input and in the output.
  [[nodiscard]] std::int64_t in(std::int64_t n, std::int64_t h, std::int64_t w) const {
    return ((n * H + h) * W + w) * C;
  }
  [[nodiscard]] std::int64_t out(std::int64_t n, std::int64_t y, std::int64_t x) const {
    return ((n * Y + y) * X + x) * C;
  }

 private:
  [[nodiscard]] Range range(std::int64_t output, std::size_t d, std::int64_t size) const {
    const std::int64_t begin = output * stride[d] - pad[d];
    const std::int64_t end = begin + reach[d];
    const std::int64_t step = dilation[d];
    const std::int64_t before = begin < 0 ? (-begin + step - 1) / step * step : 0;
    return {begin + before, std::min(end, size), step, std::min(end, size + pad[d + 2]) - begin};
  }
};

/// Calls visit(output offset, rows, columns, n) for every window, in output order.
template <typename Visit>
void for_each_window(const Pooling& p, Visit visit) {
  for (std::int64_t n = 0; n < p.N; ++n) {
    for (std::int64_t i = 0; i < p.Y; ++i) {
      for (std::int64_t j = 0; j < p.X; ++j) {
        visit(p.out(n, i, j), p.rows(i), p.columns(j), n);
      }
    }
  }
}

/// Calls visit(input offset) for those elements of a window that are inside the image, row by row.
template <typename Visit>
void for_each_element(const Pooling& p, const Range& rows, const Range& columns, std::int64_t n, Visit visit) {
  for (std::int64_t h = rows.begin; h < rows.end; h += rows.step) {
    for (std::int64_t w = columns.begin; w < columns.end; w += columns.step) {
      visit(p.in(n, h, w));
    }
  }
}

Result<std::vector<TensorType>> max_shape(const Signature& s) {
  return pooled("maxpool2d", s, kNeeded);
}

POPRUN_SIMD void take_larger(const float* __restrict x, float* __restrict y, std::int64_t C) {
  for (std::int64_t c = 0; c < C; ++c) {
    y[c] = x[c] > y[c] || x[c] != x[c] ? x[c] : y[c];  // NaN stays NaN.
  }
}

void max_forward(const Pooling& p, const float* x, float* y) {
  for_each_window(p, [&](std::int64_t o, const Range& rows, const Range& columns, std::int64_t n) {
    std::fill_n(y + o, p.C, -std::numeric_limits<float>::infinity());
    for_each_element(p, rows, columns, n, [&](std::int64_t pixel) { take_larger(x + pixel, y + o, p.C); });
  });
}

std::unique_ptr<Kernel> max_numerics(const Signature& s) {
  return make_kernel([p = Pooling(s.inputs[0], s.outputs[0], s.attributes)](const Operands& t) {
    max_forward(p, t.input_f32(0), t.output_f32(0));
  });
}

/// Counts one operation per element of every window. `y` is the type of the pooled image.
Work work_of(const Signature& s, const TensorType& y) {
  Work work = elementwise_work(s, 0);
  const auto& window = s.attributes.integers("window");
  work.vector_flops = y.elements() * window[0] * window[1];
  return work;
}

Work work(const Signature& s) {
  return work_of(s, s.outputs[0]);
}

/// maxpool2d_gradient(x, y, dy) and maxpool2d's attributes  ->  dx
Result<std::vector<TensorType>> max_gradient_shape(const Signature& s) {
  if (s.inputs.size() != 3 || !is_image(s.inputs[0]) || s.inputs[1] != s.inputs[2] || !has_geometry(s.attributes)) {
    return shape_error("maxpool2d_gradient", s, "x, y, dy and maxpool2d's attributes");
  }
  return std::vector{s.inputs[0]};
}

/// Adds dy to dx in the channels whose first maximum in the window is this pixel. `open` is all ones for channels whose
/// maximum has not been found yet.
POPRUN_SIMD void give_to_maximum(const float* __restrict x, const float* __restrict y, const float* __restrict dy,
                                 float* __restrict dx, std::uint32_t* __restrict open, std::int64_t C) {
  for (std::int64_t c = 0; c < C; ++c) {
    const std::uint32_t here = x[c] == y[c] ? open[c] : 0;
    dx[c] += here != 0 ? dy[c] : 0.0F;
    open[c] ^= here;
  }
}

void max_backward(const Pooling& p, const float* x, const float* y, const float* dy, float* dx, std::uint32_t* open) {
  std::fill_n(dx, p.N * p.H * p.W * p.C, 0.0F);
  for_each_window(p, [&](std::int64_t o, const Range& rows, const Range& columns, std::int64_t n) {
    std::fill_n(open, p.C, ~std::uint32_t{0});
    for_each_element(p, rows, columns, n,
                     [&](std::int64_t pixel) { give_to_maximum(x + pixel, y + o, dy + o, dx + pixel, open, p.C); });
  });
}

std::unique_ptr<Kernel> max_gradient_numerics(const Signature& s) {
  class Gradient final : public Kernel {
   public:
    explicit Gradient(Pooling p) : p_(std::move(p)), open_(static_cast<std::size_t>(p_.C)) {}
    void run(const Operands& t) override {
      max_backward(p_, t.input_f32(0), t.input_f32(1), t.input_f32(2), t.output_f32(0), open_.data());
    }

   private:
    Pooling p_;
    std::vector<std::uint32_t> open_;
  };
  return std::make_unique<Gradient>(Pooling(s.inputs[0], s.inputs[1], s.attributes));
}

Work max_gradient_work(const Signature& s) {
  return work_of(s, s.inputs[1]);
}

/// Only the elements of dilated windows can all lie beyond the image.
bool every_window_has_an_element(const Signature& s) {
  return dilation_of(s.attributes) == Shape{1, 1};
}

/// Where windows overlap, gradients are added.
bool no_windows_overlap(const Signature& s) {
  const Shape& stride = s.attributes.integers("stride");
  return stride[0] >= reach_of(s.attributes, 0) && stride[1] >= reach_of(s.attributes, 1);
}

void max_gradient(Differentiator& d) {
  const Operation& op = d.operation();
  d.set_input_gradient(
      0, d.add("maxpool2d_gradient", {op.inputs[0], op.outputs[0], d.output_gradient(0)}, op.attributes, {0})[0]);
}

Result<std::vector<TensorType>> average_shape(const Signature& s) {
  const std::string needed = std::string{kNeeded} + ", count_pad=0|1 and no dilation";
  if (!s.attributes.has("count_pad") || s.attributes.has("dilation")) {
    return shape_error("avgpool2d", s, needed);
  }
  return pooled("avgpool2d", s, needed);
}

std::int64_t elements_of_mean(const Range& rows, const Range& columns, bool count_pad) {
  return count_pad ? rows.padded * columns.padded : (rows.end - rows.begin) * (columns.end - columns.begin);
}

/// Calls visit(input offset, output offset, 1 / divisor of the window's mean) for every element of every window.
template <typename Visit>
void for_each_share(const Pooling& p, bool count_pad, Visit visit) {
  for_each_window(p, [&](std::int64_t o, const Range& rows, const Range& columns, std::int64_t n) {
    const float share = 1.0F / static_cast<float>(elements_of_mean(rows, columns, count_pad));
    for_each_element(p, rows, columns, n, [&](std::int64_t pixel) { visit(pixel, o, share); });
  });
}

/// Adds scale * x to y.
POPRUN_SIMD void add_scaled(const float* __restrict x, float scale, float* __restrict y, std::int64_t C) {
  for (std::int64_t c = 0; c < C; ++c) {
    y[c] += scale * x[c];
  }
}

POPRUN_SIMD void add(const float* __restrict x, double* __restrict sum, std::int64_t C) {
  for (std::int64_t c = 0; c < C; ++c) {
    sum[c] += static_cast<double>(x[c]);
  }
}

/// Average pooling over large windows, with sums in double.
class LongAverages final : public Kernel {
 public:
  LongAverages(const Pooling& pooling, bool count_pad) : p_(pooling), count_pad_(count_pad) {}

  void run(const Operands& t) override {
    auto* sums = reinterpret_cast<double*>(t.scratch);  // NOLINT: 64-byte aligned scratch.
    for_each_window(p_, [&](std::int64_t out, const Range& rows, const Range& columns, std::int64_t n) {
      std::fill_n(sums, p_.C, 0.0);
      for_each_element(p_, rows, columns, n, [&](std::int64_t pixel) { add(t.input_f32(0) + pixel, sums, p_.C); });
      const auto count = static_cast<double>(elements_of_mean(rows, columns, count_pad_));
      std::transform(sums, sums + p_.C, t.output_f32(0) + out,
                     [count](double sum) { return static_cast<float>(sum / count); });
    });
  }

  [[nodiscard]] Bytes scratch() const override { return Bytes{p_.C * 8}; }

 private:
  Pooling p_;
  bool count_pad_;
};

std::unique_ptr<Kernel> average_numerics(const Signature& s) {
  constexpr std::int64_t kLong = 1024;
  const Pooling pooling(s.inputs[0], s.outputs[0], s.attributes);
  const bool count_pad = s.attributes.integer("count_pad") != 0;
  if (pooling.reach[0] * pooling.reach[1] > kLong) {
    return std::make_unique<LongAverages>(pooling, count_pad);
  }
  return make_kernel([p = pooling, count_pad](const Operands& t) {
    const float* x = t.input_f32(0);
    float* y = t.output_f32(0);
    std::fill_n(y, p.N * p.Y * p.X * p.C, 0.0F);
    for_each_share(p, count_pad,
                   [&](std::int64_t in, std::int64_t out, float share) { add_scaled(x + in, share, y + out, p.C); });
  });
}

/// avgpool2d_gradient(dy) input_shape=[N,C,H,W] and avgpool2d's attributes  ->  dx
Result<std::vector<TensorType>> average_gradient_shape(const Signature& s) {
  if (s.inputs.size() != 1 || !is_image(s.inputs[0]) || !has_geometry(s.attributes) || !s.attributes.has("count_pad") ||
      !are_integers(s.attributes, "input_shape", 4, 1)) {
    return shape_error("avgpool2d_gradient", s, "dy, input_shape=[N,C,H,W] and avgpool2d's attributes");
  }
  return std::vector{TensorType{DataType::kF32, s.attributes.integers("input_shape"), Layout::kChannelsLast}};
}

std::unique_ptr<Kernel> average_gradient_numerics(const Signature& s) {
  return make_kernel([p = Pooling(s.outputs[0], s.inputs[0], s.attributes),
                      count_pad = s.attributes.integer("count_pad") != 0](const Operands& t) {
    const float* dy = t.input_f32(0);
    float* dx = t.output_f32(0);
    std::fill_n(dx, p.N * p.H * p.W * p.C, 0.0F);
    for_each_share(p, count_pad,
                   [&](std::int64_t in, std::int64_t out, float share) { add_scaled(dy + out, share, dx + in, p.C); });
  });
}

Work average_gradient_work(const Signature& s) {
  return work_of(s, s.inputs[0]);
}

void average_gradient(Differentiator& d) {
  Attributes attributes = d.operation().attributes;
  attributes.set("input_shape", d.type(d.operation().inputs[0]).shape);
  d.set_input_gradient(0, d.add("avgpool2d_gradient", {d.output_gradient(0)}, std::move(attributes), {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {selecting({"maxpool2d", max_shape, max_gradient, work, max_numerics}, every_window_has_an_element),
          selecting({"maxpool2d_gradient", max_gradient_shape, nullptr, max_gradient_work, max_gradient_numerics},
                    no_windows_overlap),
          {"avgpool2d", average_shape, average_gradient, work, average_numerics},
          {"avgpool2d_gradient", average_gradient_shape, nullptr, average_gradient_work, average_gradient_numerics}};
}

}  // namespace poprun::ops::pooling
