#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "replica/base/random.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/random_name.h"

/// random_normal() shape=[..] key="NAME"  ->  f32[..] of independent normal numbers with mean 0 and deviation 1.
///
/// A number is a pure function of (job seed, NAME, step, micro-batch, replica, position of the element), like the
/// choice of a dropout. Box and Muller's method turns two uniform words into two numbers, in double.
namespace poprun::ops::random_normal {
namespace {

constexpr const char* kKind = "random_normal";

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (!s.inputs.empty() || !s.attributes.has("shape") || !s.attributes.has("key")) {
    return shape_error(kKind, s, "shape=[..] and a key, and takes no input");
  }
  return std::vector{TensorType{DataType::kF32, s.attributes.integers("shape"), Layout::kRowMajor}};
}

std::array<float, 4> normal_floats(const std::array<std::uint32_t, 4>& words) {
  std::array<float, 4> values{};
  for (std::size_t k = 0; k < 4; k += 2) {
    const double u = (static_cast<double>(words.at(k)) + 1) * 0x1.0p-32;  // In (0, 1].
    const double angle = 2 * std::numbers::pi * static_cast<double>(words.at(k + 1)) * 0x1.0p-32;
    const double radius = std::sqrt(-2 * std::log(u));
    values.at(k) = static_cast<float>(radius * std::cos(angle));
    values.at(k + 1) = static_cast<float>(radius * std::sin(angle));
  }
  return values;
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel(
      [n = s.outputs[0].elements(), key = RandomName(s.attributes.values().at("key"))](const Operands& t) {
        const std::uint64_t now = key_of(*t.moment, key.at(*t.moment));
        for (std::int64_t i = 0; i < n; i += 4) {
          const auto four = normal_floats(philox(now, static_cast<std::uint64_t>(i / 4), 0));
          std::copy_n(four.begin(), std::min<std::int64_t>(4, n - i), t.output_f32(0) + i);
        }
      });
}

/// The vector units have an instruction for normal numbers (poprand's, made of sums of uniform words).
Work work(const Signature& s) {
  return elementwise_work(s, 1);
}

}  // namespace

std::vector<Operator> operators() {
  return {{.kind = kKind, .shape = shape, .gradient = flat, .work = work, .numerics = numerics, .reads_moment = true}};
}

}  // namespace poprun::ops::random_normal
