#include "replica/ops/softmax/row_exp.h"

#include <algorithm>
#include <array>
#include <bit>

#include "replica/ops/face/simd.h"

namespace poprun {
namespace {

constexpr std::int64_t kLanes = 16;

/// Returns exp(x) for x <= 0, with an error of at most 2 units in the last place; never below exp(-87). NaN stays NaN.
/// Uses Cody and Waite's reduction with the polynomial of Moshier's Cephes (expf.c), in a form that vectorises.
[[gnu::always_inline]] inline float exp_of_negative(float x) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer.
  x = x < -87.0F ? -87.0F : x;
  const float shifted = x * 1.44269504F + kMagic;
  const float n = shifted - kMagic;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kMagic) + 127;
  return p * std::bit_cast<float>(static_cast<std::uint32_t>(exponent) << 23U);
}

}  // namespace

POPRUN_SIMD float largest_of(const float* row, std::int64_t K) {
  std::array<float, kLanes> lanes;
  lanes.fill(row[0]);
  std::int64_t k = 0;
  for (; k + kLanes <= K; k += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) {
      const float x = row[k + l];
      float& lane = lanes[static_cast<std::size_t>(l)];
      lane = lane < x ? x : lane;
    }
  }
  float largest = *std::max_element(lanes.begin(), lanes.end());
  for (; k < K; ++k) {
    largest = largest < row[k] ? row[k] : largest;
  }
  return largest;
}

POPRUN_SIMD double sum_of_exp(const float* row, std::int64_t K, float largest) {
  std::array<float, kLanes> lanes{};
  std::int64_t k = 0;
  for (; k + kLanes <= K; k += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) {
      lanes[static_cast<std::size_t>(l)] += exp_of_negative(row[k + l] - largest);
    }
  }
  double sum = 0;
  for (const float lane : lanes) {
    sum += static_cast<double>(lane);
  }
  for (; k < K; ++k) {
    sum += static_cast<double>(exp_of_negative(row[k] - largest));
  }
  return sum;
}

POPRUN_SIMD void write_exponentials(const float* __restrict row, std::int64_t K, float largest, float factor,
                                    float* __restrict y) {
  for (std::int64_t k = 0; k < K; ++k) {
    y[k] = factor * exp_of_negative(row[k] - largest);
  }
}

}  // namespace poprun
