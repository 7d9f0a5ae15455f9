#include <algorithm>
#include <cmath>

#include "replica/base/random.h"
#include "replica/ops/operator.h"
#include "replica/ops/random_name.h"
#include "replica/ops/simd.h"

/// dropout(x) rate=. key="NAME"  ->  y, any shape and layout: each element is 0 with probability
/// rate, otherwise x / (1 - rate).
///
/// Which elements are dropped is a pure function of (job seed, NAME, step, micro-batch, replica,
/// storage position of the element). It does not depend on execution order, and the gradient, the
/// same operator with the same key applied to dy, recomputes it instead of storing it. The rate is
/// rounded to multiples of 1 / 65,536.
namespace poprun {
namespace {

constexpr std::int64_t kPerDraw = 8;  ///< Each element takes 16 bits of a draw.
constexpr std::int64_t kBlock = 1024;

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kF32 || !s.attributes.has("rate") ||
      !s.attributes.has("key") || !(s.attributes.real("rate") >= 0) ||
      !(s.attributes.real("rate") < 1)) {
    return shape_error("dropout", s, "one f32 tensor, 0 <= rate < 1 and a key");
  }
  return std::vector{s.inputs[0]};
}

/// The random key of one run.
std::uint64_t key_of(const Moment& now, const std::string& name) {
  const auto words = philox(random_key(now.seed, name), now.step,
                            (std::uint64_t{now.replica} << 32U) | std::uint64_t{now.micro_batch});
  return (std::uint64_t{words[1]} << 32U) | words[0];
}

POPRUN_SIMD void keep(const float* x, const std::uint16_t* __restrict draw, std::uint16_t threshold,
                      float factor, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = draw[i] < threshold ? 0.0F : x[i] * factor;
  }
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const double rate = s.attributes.real("rate");
  return make_kernel(
      [n = s.inputs[0].elements(), key = RandomName(s.attributes.values().at("key")),
       threshold = static_cast<std::uint16_t>(std::lround(std::min(rate * 65536, 65535.0))),
       factor = static_cast<float>(1 / (1 - rate))](const Operands& t) {
        const std::uint64_t now = key_of(*t.moment, key.at(*t.moment));
        std::uint16_t draws[kBlock];
        for (std::int64_t begin = 0; begin < n; begin += kBlock) {
          const std::int64_t size = std::min(kBlock, n - begin);
          for (std::int64_t i = 0; i < size; i += kPerDraw) {
            const auto words = philox(now, static_cast<std::uint64_t>((begin + i) / kPerDraw), 0);
            for (std::int64_t k = 0; k < kPerDraw; ++k) {
              const std::uint32_t word = words[static_cast<std::size_t>(k / 2)];
              draws[i + k] = static_cast<std::uint16_t>(k % 2 == 0 ? word >> 16U : word);
            }
          }
          keep(t.input_f32(0) + begin, draws, threshold, factor, t.output_f32(0) + begin, size);
        }
      });
}

/// A comparison and a product; random numbers come from the tile's hardware generator.
Work work(const Signature& s) {
  return elementwise_work(s, 2);
}

void gradient(Differentiator& d) {
  d.set_input_gradient(0,
                       d.add("dropout", {d.output_gradient(0)}, d.operation().attributes, {0})[0]);
}

}  // namespace

std::vector<Operator> dropout_operators() {
  return {{.kind = "dropout",
           .shape = shape,
           .gradient = gradient,
           .work = work,
           .numerics = numerics,
           .reads_moment = true,
           .in_place = {0}}};
}

}  // namespace poprun
