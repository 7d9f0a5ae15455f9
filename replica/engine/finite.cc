#include "replica/engine/finite.h"

#include "replica/base/half.h"
#include "replica/ops/simd.h"

namespace poprun {
namespace {

constexpr std::uint32_t kExponent32 = 0x7F800000U;
constexpr std::uint16_t kExponent16 = 0x7C00U;

/// Largest exponent field of `n` numbers.
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

template <typename Bits>
std::optional<NotFinite> first(const Bits* bits, std::int64_t n, Bits exponent, Bits fraction) {
  for (std::int64_t i = 0; i < n; ++i) {
    if ((bits[i] & exponent) == exponent) {
      return NotFinite{(bits[i] & fraction) != 0 ? "NaN" : "infinity", i};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<NotFinite> find_not_finite(const TensorType& type, std::span<const std::byte> bytes) {
  const std::int64_t n = type.elements();
  if (type.data == DataType::kF32) {
    const auto* bits = reinterpret_cast<const std::uint32_t*>(bytes.data());  // NOLINT: f32 tensor.
    return largest_exponent(bits, n) == kExponent32
               ? first<std::uint32_t>(bits, n, kExponent32, 0x007FFFFFU)
               : std::nullopt;
  }
  if (type.data == DataType::kF16) {
    const auto* bits = reinterpret_cast<const Half*>(bytes.data());  // NOLINT: f16 tensor.
    return largest_half_exponent(bits, n) == kExponent16
               ? first<Half>(bits, n, kExponent16, Half{0x03FFU})
               : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace poprun
