#pragma once

#include <bit>
#include <cstdint>

/// IEEE 754 binary16 as its bits, and the roundings to it. Pure integer and float arithmetic
/// without branches, so that loops over it become vectors on any processor, with the same bits
/// everywhere.
///
/// The selects follow F. Giesen, "Float->half variants" (public domain), rounding to nearest even.
namespace poprun {

/// Bits of a binary16 number.
using Half = std::uint16_t;

constexpr float half_to_float(Half half) {
  constexpr std::uint32_t kInfinity = 0x7C00U << 13U;
  constexpr std::uint32_t kSmallest = 113U << 23U;  // 2^-14, the smallest normal half.
  const std::uint32_t magnitude = (half & 0x7FFFU) << 13U;
  const std::uint32_t exponent = magnitude & kInfinity;
  const std::uint32_t normal = magnitude + ((127U - 15U) << 23U);
  const std::uint32_t special = normal + ((128U - 16U) << 23U);
  const auto subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(normal + (1U << 23U)) -
                                                      std::bit_cast<float>(kSmallest));
  const std::uint32_t bits = exponent == kInfinity ? special : exponent == 0 ? subnormal : normal;
  return std::bit_cast<float>(bits | ((half & 0x8000U) << 16U));
}

/// Rounded to nearest even; beyond 65,504 to infinity. NaN stays NaN.
constexpr Half float_to_half(float value) {
  constexpr std::uint32_t kInfinity = 255U << 23U;
  constexpr std::uint32_t kTooLarge = (127U + 16U) << 23U;  // 2^16
  constexpr std::uint32_t kSmallest = 113U << 23U;          // 2^-14
  constexpr std::uint32_t kDenormalMagic = ((127U - 15U) + (23U - 10U) + 1U) << 23U;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t special = magnitude > kInfinity ? 0x7E00U : 0x7C00U;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) +
                                   std::bit_cast<float>(kDenormalMagic)) -
      kDenormalMagic;
  const std::uint32_t odd = (magnitude >> 13U) & 1U;
  const std::uint32_t normal = (magnitude - ((127U - 15U) << 23U) + 0xFFFU + odd) >> 13U;
  const std::uint32_t rounded = magnitude >= kTooLarge  ? special
                                : magnitude < kSmallest ? subnormal
                                                        : normal;
  return static_cast<Half>(rounded | ((bits >> 16U) & 0x8000U));
}

/// Rounded up or down at random: up with the probability that makes the mean exact. `word` is
/// uniform; its upper 13 bits count. Beyond 65,504 to infinity. NaN stays NaN.
///
/// Exact numbers stay themselves whatever the word.
constexpr Half float_to_half_stochastic(float value, std::uint32_t word) {
  constexpr std::uint32_t kTooLarge = (127U + 16U) << 23U;
  constexpr std::uint32_t kSmallest = 113U << 23U;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  // Normal: 13 random bits below the last that stays, then the rest cut off.
  const std::uint32_t random = word >> 19U;
  const std::uint32_t cut = (magnitude + random) & ~0x1FFFU;
  // Subnormal: steps of 2^-24; the sum is below 2^10 + 1 in those steps.
  const float steps =
      std::bit_cast<float>(magnitude) * 0x1p24F + static_cast<float>(random) * 0x1p-13F;
  const auto whole =
      static_cast<std::uint32_t>(magnitude < kSmallest ? static_cast<std::int32_t>(steps) : 0);
  const Half exact = float_to_half(std::bit_cast<float>(cut));
  const Half rounded = magnitude >= kTooLarge  ? static_cast<Half>(float_to_half(value) & 0x7FFFU)
                       : magnitude < kSmallest ? static_cast<Half>(whole)
                                               : exact;
  return static_cast<Half>(rounded | ((bits >> 16U) & 0x8000U));
}

}  // namespace poprun
