#include "replica/base/half.h"

#include <bit>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace poprun {
namespace {

// The exponents of float32 and half differ by a bias of 127 - 15, and the fractions by 13 bits (kShift).
constexpr std::uint32_t kInfinity = 0x7f80'0000U;
constexpr std::uint32_t kQuiet = 0x0040'0000U;
constexpr std::uint32_t kBias = 112U << 23U;
constexpr unsigned kShift = 13;

}  // namespace

float to_float(Half half) {
  const std::uint32_t sign = (half & 0x8000U) << 16U;
  const std::uint32_t exponent = half & 0x7c00U;
  const std::uint32_t fraction = half & 0x03ffU;
  if (exponent == 0x7c00U) {
    const std::uint32_t payload = fraction == 0 ? 0 : kQuiet | (fraction << kShift);
    return std::bit_cast<float>(sign | kInfinity | payload);
  }
  if (exponent == 0) {  // Subnormal: a multiple of 2^-24.
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | (((exponent | fraction) << kShift) + kBias));
}

Half to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fff'ffffU;
  std::uint32_t half = 0;
  if (magnitude > kInfinity) {
    half = 0x7e00U | ((magnitude >> kShift) & 0x03ffU);
  } else if (magnitude >= std::bit_cast<std::uint32_t>(0x1p+16F)) {
    half = 0x7c00U;
  } else if (magnitude >= std::bit_cast<std::uint32_t>(0x1p-14F)) {
    // A carry out of the fraction correctly increments the exponent.
    const std::uint32_t rebiased = magnitude - kBias;
    half = (rebiased + 0x0fffU + ((rebiased >> kShift) & 1U)) >> kShift;
  } else {
    // In float32, the last place of 0.5 is 2^-24, the spacing of subnormal halves, so the addition does the rounding.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  }
  return static_cast<Half>(sign | half);
}

Half to_half_at_random(float value, std::uint32_t word) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fff'ffffU;
  const std::uint32_t random = word >> 19U;
  if (magnitude >= std::bit_cast<std::uint32_t>(0x1p+16F)) {
    return to_half(value);
  }
  if (magnitude >= std::bit_cast<std::uint32_t>(0x1p-14F)) {
    // Add 13 random bits below the last place of a half, then truncate.
    const std::uint32_t cut = (bits + random) & ~((1U << kShift) - 1);
    return to_half(std::bit_cast<float>(cut));
  }
  const float steps = std::bit_cast<float>(magnitude) * 0x1p+24F;
  const auto whole = static_cast<std::uint32_t>(steps + static_cast<float>(random) * 0x1p-13F);
  return static_cast<Half>(((bits >> 16U) & 0x8000U) | whole);
}

namespace {

#if defined(__x86_64__)

constexpr std::size_t kLanes = 8;

bool has_instructions() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

/// Converts whole vectors and returns the number of elements converted.
__attribute__((target("avx,f16c"))) std::size_t to_floats_by_vectors(const Half* halves, float* floats,
                                                                     std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + i));
    _mm256_storeu_ps(floats + i, _mm256_cvtph_ps(packed));
  }
  return i;
}

__attribute__((target("avx,f16c"))) std::size_t to_halves_by_vectors(const float* floats, Half* halves,
                                                                     std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i packed = _mm256_cvtps_ph(_mm256_loadu_ps(floats + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + i), packed);
  }
  return i;
}

#else

bool has_instructions() {
  return false;
}
std::size_t to_floats_by_vectors(const Half*, float*, std::size_t) {
  return 0;
}
std::size_t to_halves_by_vectors(const float*, Half*, std::size_t) {
  return 0;
}

#endif

const bool kHasInstructions = has_instructions();

}  // namespace

void to_floats(const Half* halves, float* floats, std::size_t count) {
  std::size_t i = kHasInstructions ? to_floats_by_vectors(halves, floats, count) : 0;
  for (; i < count; ++i) {
    floats[i] = to_float(halves[i]);
  }
}

void to_halves(const float* floats, Half* halves, std::size_t count) {
  std::size_t i = kHasInstructions ? to_halves_by_vectors(floats, halves, count) : 0;
  for (; i < count; ++i) {
    halves[i] = to_half(floats[i]);
  }
}

}  // namespace poprun
