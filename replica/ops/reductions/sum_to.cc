#include <algorithm>
#include <array>

#include "replica/ops/broadcast/broadcast.h"
#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/shaped.h"
#include "replica/ops/face/simd.h"

/// sum_to(x) shape=[..] layout="row-major" | "nhwc" scale=.  ->  y
///
/// The gradient of broadcasting: sums x over the dimensions along which `shape` is broadcast. (The gradient of sum_to
/// itself is `expand`.) Elements are summed in double, in memory order, but a row that becomes one element is first
/// summed in 16 interleaved parts, whatever the CPU. Sums are multiplied by `scale` (default 1) and rounded once, so a
/// mean in half precision is finite even if its sum is not.
namespace poprun::ops::sum_to {
namespace {

double scale_of(const Attributes& attributes) {
  return attributes.has("scale") ? attributes.real("scale") : 1.0;
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  const auto y = shaped_type(DataType::kF32, s.attributes);
  if (!y || s.inputs.size() != 1 || s.inputs[0].data != DataType::kF32 ||
      broadcast_shape(s.inputs[0].shape, y->shape) != s.inputs[0].shape) {
    return shape_error("sum_to", s,
                       "one f32 tensor, a shape=[..] that broadcasts to its shape, and layout (nhwc only "
                       "for rank 4)");
  }
  return std::vector{*y};
}

POPRUN_SIMD void add_rows(const float* __restrict x, double* __restrict y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] += static_cast<double>(x[i]);
  }
}

POPRUN_SIMD double row_sum(const float* x, std::int64_t n) {
  std::array<double, 16> lanes{};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (std::size_t l = 0; l < 16; ++l) {
      lanes[l] += static_cast<double>(x[i + static_cast<std::int64_t>(l)]);
    }
  }
  double sum = 0;
  for (const double lane : lanes) {
    sum += lane;
  }
  for (; i < n; ++i) {
    sum += static_cast<double>(x[i]);
  }
  return sum;
}

void add_row(const float* x, double* y, std::int64_t n, std::int64_t stride) {
  if (stride == 0) {
    *y += row_sum(x, n);
  } else if (stride == 1) {
    add_rows(x, y, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      y[i * stride] += static_cast<double>(x[i]);
    }
  }
}

class SumTo final : public Kernel {
 public:
  explicit SumTo(const Signature& s)
      : loops_(broadcast_loops(s.inputs[0], {s.outputs[0]})),
        n_(s.outputs[0].elements()),
        scale_(scale_of(s.attributes)) {}

  void run(const Operands& t) override {
    auto* sums = reinterpret_cast<double*>(t.scratch);  // NOLINT: 64-byte aligned scratch.
    std::fill_n(sums, n_, 0.0);
    loops_.for_each_row([&](std::int64_t at, const Shape& offsets) {
      add_row(t.input_f32(0) + at, sums + offsets[0], loops_.row(), loops_.row_stride(0));
    });
    std::transform(sums, sums + n_, t.output_f32(0), [this](double sum) { return static_cast<float>(sum * scale_); });
  }

  [[nodiscard]] Bytes scratch() const override { return Bytes{n_ * 8}; }

 private:
  BroadcastLoops loops_;
  std::int64_t n_;
  double scale_;
};

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return std::make_unique<SumTo>(s);
}

Work work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = s.inputs[0].elements();
  work.exchanged = s.outputs[0].bytes();
  return work;
}

void gradient(Differentiator& d) {
  const TensorType& x = d.type(d.operation().inputs[0]);
  const Attributes whole = shaped(x.shape, x.layout);
  TensorId dy = d.output_gradient(0);
  if (const double scale = scale_of(d.operation().attributes); scale != 1) {
    const TensorId factor = d.add(kinds::kFill, {}, {{"shape", Shape{}}, {"value", scale}}, {0})[0];
    dy = d.add(kinds::kMul, {dy, factor}, {}, {0})[0];
  }
  d.set_input_gradient(0, d.add(kinds::kExpand, {dy}, whole, {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {{"sum_to", shape, gradient, work, numerics}};
}

}  // namespace poprun::ops::sum_to
