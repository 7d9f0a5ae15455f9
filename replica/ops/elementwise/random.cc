#include "replica/base/random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "replica/ops/face/operator.h"
#include "replica/ops/face/random_name.h"
#include "replica/ops/face/shaped.h"

/// Tensors of random numbers.
///
///   random_uniform() shape=[..] key="NAME"  ->  f32, row-major, uniform in [0, 1), multiples of 2^-24
///   random_normal() shape=[..] key="NAME"   ->  f32, row-major, with mean 0 and variance 1
///
/// As in dropout, an element is a pure function of (job seed, NAME, step, micro-batch, replica, position). Box and
/// Muller, "A note on the generation of random normal deviates", 1958, gives two normal numbers for two uniform ones;
/// the largest are 6.7.
namespace poprun::ops::random {
namespace {

Result<std::vector<TensorType>> shape(const char* kind, const Signature& s) {
  if (!s.inputs.empty() || !s.attributes.has("shape") || !s.attributes.has("key")) {
    return shape_error(kind, s, "shape=[..] and a key, and takes no input");
  }
  return std::vector{TensorType{DataType::kF32, s.attributes.integers("shape"), {}}};
}

Result<std::vector<TensorType>> uniform_shape(const Signature& s) {
  return shape("random_uniform", s);
}
Result<std::vector<TensorType>> normal_shape(const Signature& s) {
  return shape("random_normal", s);
}

using Words = std::array<std::uint32_t, 4>;
using Numbers = std::array<float, 4>;

Numbers uniform(const Words& words) {
  return {unit_float(words[0]), unit_float(words[1]), unit_float(words[2]), unit_float(words[3])};
}

Numbers normal(const Words& words) {
  Numbers y{};
  for (std::size_t k = 0; k < 4; k += 2) {
    const double u = (static_cast<double>(words.at(k)) + 1) * 0x1p-32;  // In (0, 1].
    const double radius = std::sqrt(-2 * std::log(u));
    const double angle = 2 * std::numbers::pi * static_cast<double>(words.at(k + 1)) * 0x1p-32;
    y.at(k) = static_cast<float>(radius * std::cos(angle));
    y.at(k + 1) = static_cast<float>(radius * std::sin(angle));
  }
  return y;
}

template <typename Draw>
std::unique_ptr<Kernel> numerics(const Signature& s, Draw draw) {
  return make_kernel(
      [n = s.outputs[0].elements(), key = RandomName(s.attributes.values().at("key")), draw](const Operands& t) {
        const std::uint64_t now = key_of(*t.moment, key.at(*t.moment));
        for (std::int64_t i = 0; i < n; i += 4) {
          const Numbers four = draw(philox(now, static_cast<std::uint64_t>(i / 4), 0));
          std::copy_n(four.begin(), std::min<std::int64_t>(4, n - i), t.output_f32(0) + i);
        }
      });
}

std::unique_ptr<Kernel> uniform_numerics(const Signature& s) {
  return numerics(s, uniform);
}
std::unique_ptr<Kernel> normal_numerics(const Signature& s) {
  return numerics(s, normal);
}

/// Counts one conversion per element. Random numbers come from the tile's hardware generator, which also draws normal
/// ones.
Work work(const Signature& s) {
  return elementwise_work(s, 1);
}

}  // namespace

std::vector<Operator> operators() {
  return {{.kind = "random_uniform",
           .shape = uniform_shape,
           .gradient = flat,
           .work = work,
           .numerics = uniform_numerics,
           .reads_moment = true},
          {.kind = "random_normal",
           .shape = normal_shape,
           .gradient = flat,
           .work = work,
           .numerics = normal_numerics,
           .reads_moment = true}};
}

}  // namespace poprun::ops::random
