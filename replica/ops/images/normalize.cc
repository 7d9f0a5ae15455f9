#include <cstdint>

#include "replica/ops/face/operator.h"
#include "replica/ops/face/simd.h"

/// normalize(x u8[N,C,H,W]) mean=. deviation=.  ->  y f32[N,C,H,W]{nhwc} = (x/255 - mean)/deviation
///
/// Runs on the device, so that a dataset's images are sent with 8 bits per pixel and channel.
namespace poprun::ops::normalize {
namespace {

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kU8 || s.inputs[0].shape.size() != 4 ||
      s.inputs[0].layout != Layout::kRowMajor || !s.attributes.has("mean") || !s.attributes.has("deviation") ||
      !(s.attributes.real("deviation") > 0)) {
    return shape_error("normalize", s, "x u8[N,C,H,W], mean and deviation > 0");
  }
  return std::vector{TensorType{DataType::kF32, s.inputs[0].shape, Layout::kChannelsLast}};
}

/// Normalises one channel's plane [H, W]. The results are written `step` floats apart.
POPRUN_SIMD void plane(const std::uint8_t* __restrict x, float* __restrict y, std::int64_t pixels, std::int64_t step,
                       float scale, float offset) {
  for (std::int64_t i = 0; i < pixels; ++i) {
    y[i * step] = static_cast<float>(x[i]) * scale + offset;
  }
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const Shape& d = s.inputs[0].shape;
  const double deviation = s.attributes.real("deviation");
  const auto scale = static_cast<float>(1.0 / (255.0 * deviation));
  const auto offset = static_cast<float>(-s.attributes.real("mean") / deviation);
  return make_kernel([N = d[0], C = d[1], pixels = d[2] * d[3], scale, offset](const Operands& t) {
    const auto* x = reinterpret_cast<const std::uint8_t*>(t.inputs[0]);  // NOLINT: u8 tensor.
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t c = 0; c < C; ++c) {
        plane(x + (n * C + c) * pixels, t.output_f32(0) + n * C * pixels + c, pixels, C, scale, offset);
      }
    }
  });
}

Work work(const Signature& s) {
  return elementwise_work(s, 2);
}

}  // namespace

std::vector<Operator> operators() {
  return {{"normalize", shape, nullptr, work, numerics}};
}

}  // namespace poprun::ops::normalize
