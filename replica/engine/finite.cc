#include "replica/engine/finite.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "replica/base/half.h"
#include "replica/ops/face/simd.h"

namespace poprun {
namespace {

constexpr std::uint32_t kExponent32 = 0x7F800000U;
constexpr std::uint16_t kExponent16 = 0x7C00U;
constexpr Half kLargest16 = 0x7BFFU;

/// The largest exponent field of `n` numbers.
POPRUN_SIMD std::uint32_t largest_exponent(const std::uint32_t* bits, std::int64_t n) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t exponent = bits[i] & kExponent32;
    largest = exponent > largest ? exponent : largest;
  }
  return largest;
}

POPRUN_SIMD std::uint16_t largest_half_exponent(const Half* bits, std::int64_t n) {
  std::uint16_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto exponent = static_cast<std::uint16_t>(bits[i] & kExponent16);
    largest = exponent > largest ? exponent : largest;
  }
  return largest;
}

/// The largest magnitude of `n` numbers. Without their signs, floats compare like their bits.
POPRUN_SIMD std::uint32_t largest_magnitude(const std::uint32_t* bits, std::int64_t n) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = bits[i] & 0x7FFFFFFFU;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

POPRUN_SIMD std::uint16_t largest_half_magnitude(const Half* bits, std::int64_t n) {
  std::uint16_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto magnitude = static_cast<std::uint16_t>(bits[i] & 0x7FFFU);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

template <typename Bits>
std::optional<NotFinite> first(const Bits* bits, std::int64_t n, Bits exponent, Bits fraction) {
  std::optional<NotFinite> infinity;
  for (std::int64_t i = 0; i < n; ++i) {
    if ((bits[i] & exponent) != exponent) {
      continue;
    }
    if ((bits[i] & fraction) != 0) {
      return NotFinite{"NaN", i};
    }
    if (!infinity) {
      infinity = {kInfinity, i};
    }
  }
  return infinity;
}

const std::uint32_t* bits32(std::span<const std::byte> bytes) {
  return reinterpret_cast<const std::uint32_t*>(bytes.data());  // NOLINT: f32 tensor.
}

const Half* bits16(std::span<const std::byte> bytes) {
  return reinterpret_cast<const Half*>(bytes.data());  // NOLINT: f16 tensor.
}

}  // namespace

std::optional<NotFinite> find_not_finite(const TensorType& type, std::span<const std::byte> bytes) {
  const std::int64_t n = type.elements();
  if (type.data == DataType::kF32) {
    return largest_exponent(bits32(bytes), n) == kExponent32
               ? first<std::uint32_t>(bits32(bytes), n, kExponent32, 0x007FFFFFU)
               : std::nullopt;
  }
  if (type.data == DataType::kF16) {
    return largest_half_exponent(bits16(bytes), n) == kExponent16
               ? first<Half>(bits16(bytes), n, kExponent16, Half{0x03FFU})
               : std::nullopt;
  }
  return std::nullopt;
}

bool has_extreme(const TensorType& type, std::span<const std::byte> bytes, DataType result) {
  const std::int64_t n = type.elements();
  if (type.data == DataType::kF32) {
    const float limit = result == DataType::kF16 ? to_float(kLargest16) : std::numeric_limits<float>::max();
    return largest_magnitude(bits32(bytes), n) >= std::bit_cast<std::uint32_t>(limit);
  }
  return type.data == DataType::kF16 && largest_half_magnitude(bits16(bytes), n) >= kLargest16;
}

}  // namespace poprun
