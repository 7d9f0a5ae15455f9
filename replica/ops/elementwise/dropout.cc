#include <algorithm>
#include <cmath>

#include "replica/base/random.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/random_name.h"
#include "replica/ops/face/simd.h"

/// dropout(x) rate=. key="NAME"  ->  y, any shape and layout: each element is 0 with probability
/// rate, otherwise x divided by the probability of being kept.
///
/// Whether an element is dropped is a pure function of (job seed, NAME, step, micro-batch, replica, storage position of
/// the element). It does not depend on execution order. The gradient applies the same operator with the same key to dy,
/// which recomputes the choice instead of storing it. An element uses 16 random bits if they represent its probability
/// of being kept to within 1 part in 10,000, as for all rates up to 0.92, and 32 bits otherwise. The expected value of
/// the result is therefore x to within 1 part in 10,000.
namespace poprun::ops::dropout {
namespace {

constexpr std::int64_t kBlock = 1024;

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kF32 || !s.attributes.has("rate") ||
      !s.attributes.has("key") || !(s.attributes.real("rate") >= 0) || !(s.attributes.real("rate") < 1)) {
    return shape_error("dropout", s, "one f32 tensor, 0 <= rate < 1 and a key");
  }
  return std::vector{s.inputs[0]};
}

/// Draws are uniform integers. An element is dropped if its draw is below `threshold`.
template <typename Draw>
struct Drops {
  static constexpr double kDraws = 0x1p16 * (sizeof(Draw) == 4 ? 0x1p16 : 1);

  Draw threshold;
  double stays;  ///< Probability that an element is kept.

  explicit Drops(double rate) {
    const double kept = std::max(1.0, kDraws - std::round(rate * kDraws));
    threshold = static_cast<Draw>(kDraws - kept);
    stays = kept / kDraws;
  }
};

/// Returns whether 16 bits represent the probability of being kept accurately enough.
bool takes_short_draws(double rate) {
  return std::abs(Drops<std::uint16_t>(rate).stays - (1 - rate)) <= 1e-4 * (1 - rate);
}

void fill_draws(std::uint64_t key, std::int64_t begin, std::uint16_t* draws, std::int64_t n) {
  constexpr std::int64_t kPerCall = 8;
  for (std::int64_t i = 0; i < n; i += kPerCall) {
    const auto words = philox(key, static_cast<std::uint64_t>((begin + i) / kPerCall), 0);
    for (std::int64_t k = 0; k < kPerCall; ++k) {
      const std::uint32_t word = words[static_cast<std::size_t>(k / 2)];
      draws[i + k] = static_cast<std::uint16_t>(k % 2 == 0 ? word >> 16U : word);
    }
  }
}

void fill_draws(std::uint64_t key, std::int64_t begin, std::uint32_t* draws, std::int64_t n) {
  constexpr std::int64_t kPerCall = 4;
  for (std::int64_t i = 0; i < n; i += kPerCall) {
    const auto words = philox(key, static_cast<std::uint64_t>((begin + i) / kPerCall), 0);
    std::ranges::copy(words, draws + i);
  }
}

template <typename Draw>
POPRUN_SIMD void keep(const float* x, const Draw* __restrict draw, Draw threshold, float factor, float* y,
                      std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = draw[i] < threshold ? 0.0F : x[i] * factor;
  }
}

template <typename Draw>
std::unique_ptr<Kernel> numerics_with(const Signature& s, float factor) {
  return make_kernel([n = s.inputs[0].elements(), key = RandomName(s.attributes.values().at("key")),
                      threshold = Drops<Draw>(s.attributes.real("rate")).threshold, factor](const Operands& t) {
    const std::uint64_t now = key_of(*t.moment, key.at(*t.moment));
    Draw draws[kBlock];
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
      const std::int64_t size = std::min(kBlock, n - begin);
      fill_draws(now, begin, draws, size);
      keep(t.input_f32(0) + begin, draws, threshold, factor, t.output_f32(0) + begin, size);
    }
  });
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const double rate = s.attributes.real("rate");
  if (takes_short_draws(rate)) {
    return numerics_with<std::uint16_t>(s, static_cast<float>(1 / (1 - rate)));
  }
  return numerics_with<std::uint32_t>(s, static_cast<float>(1 / Drops<std::uint32_t>(rate).stays));
}

/// Counts a comparison and a product per element. Random numbers come from the tile's hardware generator.
Work work(const Signature& s) {
  return elementwise_work(s, 2);
}

void gradient(Differentiator& d) {
  d.set_input_gradient(0, d.add("dropout", {d.output_gradient(0)}, d.operation().attributes, {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {{.kind = "dropout",
           .shape = shape,
           .gradient = gradient,
           .work = work,
           .numerics = numerics,
           .reads_moment = true,
           .in_place = {0}}};
}

}  // namespace poprun::ops::dropout
