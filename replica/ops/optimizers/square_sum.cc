#include "replica/ops/optimizers/square_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "replica/ops/face/simd.h"

namespace poprun {
namespace {

constexpr std::int64_t kLanes = 8;
constexpr std::int64_t kBlock = 1024;  ///< Elements that are summed at a time.

/// log2 of the upper limit of a value, in units. A lane adds kBlock / kLanes = 2^7 values below 2^46 units. Its sum is
/// at most 2^53 units and therefore exact in double, in any order.
constexpr int kUnitsBits = 46;

// The compiler turns operations on these vectors into SIMD instructions.
using Floats __attribute__((vector_size(kLanes * sizeof(float)))) = float;
using Doubles __attribute__((vector_size(kLanes * sizeof(double)))) = double;
using Bits __attribute__((vector_size(kLanes * sizeof(double)))) = std::uint64_t;

/// Returns the bits of the largest absolute value. Read as integers, infinity and NaN exceed all numbers.
POPRUN_SIMD std::uint32_t largest_bits(const float* x, std::int64_t n) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFU;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

/// Returns 2^exponent. Requires: the result is a normal number.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52U);
}

/// Returns the sum of the lanes, which are multiples of 2^unit, in units of 2^unit.
std::int64_t total(const Doubles& lanes, int unit) {
  const Doubles counts = lanes * power_of_two(-unit);
  std::int64_t sum = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    sum += static_cast<std::int64_t>(counts[lane]);
  }
  return sum;
}

/// Returns a number that, when added to a double, rounds it to a multiple of 2^unit.
double shift_of(int unit) {
  return 1.5 * power_of_two(unit + 52);
}

/// Returns whether any of the doubles with these bits is not 0.
bool any(const Bits& bits) {
  std::uint64_t set = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    set |= bits[lane];
  }
  return set << 1U != 0;  // -0 is 0.
}

/// Exact sums of the multiples that were subtracted from the values of a block.
struct Taken {
  std::int64_t high;  ///< In units of 2^high.
  std::int64_t low;   ///< In units of 2^low.
  bool all;           ///< Whether no remainder is left.
};

/// Squares `vectors` * kLanes numbers, exactly, in double. Subtracts the nearest multiple of 2^high from each square
/// and the nearest multiple of 2^low from the rest, sums these multiples, and leaves the remainders in `rests`.
///
/// Requires: the squares are below 2^(high + kUnitsBits), and high <= low + kUnitsBits.
POPRUN_SIMD Taken square(int high, int low, const float* x, std::int64_t vectors, double* __restrict rests) {
  const Doubles high_shift = shift_of(high) - Doubles{};
  const Doubles low_shift = shift_of(low) - Doubles{};
  Doubles high_sum{};
  Doubles low_sum{};
  Bits left{};
  for (std::int64_t v = 0; v < vectors; ++v) {
    Floats single;
    std::memcpy(&single, x + v * kLanes, sizeof single);
    const Doubles wide = __builtin_convertvector(single, Doubles);
    const Doubles p = wide * wide;
    const Doubles near = (p + high_shift) - high_shift;
    const Doubles rest = p - near;
    const Doubles rest_near = (rest + low_shift) - low_shift;
    const Doubles remains = rest - rest_near;
    std::memcpy(rests + v * kLanes, &remains, sizeof remains);
    high_sum += near;
    low_sum += rest_near;
    Bits bits;
    std::memcpy(&bits, &remains, sizeof bits);
    left |= bits;
  }
  return {total(high_sum, high), total(low_sum, low), !any(left)};
}

/// Subtracts the nearest multiple of 2^low from each remainder in `rests`, and sums these multiples.
POPRUN_SIMD Taken take(int low, std::int64_t vectors, double* __restrict rests) {
  const Doubles shift = shift_of(low) - Doubles{};
  Doubles sum{};
  Bits left{};
  for (std::int64_t v = 0; v < vectors; ++v) {
    Doubles rest;
    std::memcpy(&rest, rests + v * kLanes, sizeof rest);
    const Doubles near = (rest + shift) - shift;
    const Doubles remains = rest - near;
    std::memcpy(rests + v * kLanes, &remains, sizeof remains);
    sum += near;
    Bits bits;
    std::memcpy(&bits, &remains, sizeof bits);
    left |= bits;
  }
  return {0, total(sum, low), !any(left)};
}

}  // namespace

void SquareSum::add(const float* values, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kBlock) {
    add_block(values + i, std::min(kBlock, n - i));
  }
  carry();
}

void SquareSum::add_block(const float* values, std::int64_t n) {
  alignas(64) std::array<float, kBlock> own;
  std::uint32_t largest = largest_bits(values, n);
  const bool finite = std::isfinite(std::bit_cast<float>(largest));
  if (!finite || n % kLanes != 0) {
    own.fill(0);
    std::copy_if(values, values + n, own.begin(), [](float x) { return std::isfinite(x); });
    nans_ += std::count_if(values, values + n, [](float x) { return std::isnan(x); });
    infinities_ += std::count_if(values, values + n, [](float x) { return std::isinf(x); });
    values = own.data();
    largest = largest_bits(values, n);
  }
  if (largest == 0) {
    return;
  }
  alignas(64) std::array<double, kBlock> rests;
  const std::int64_t vectors = (n + kLanes - 1) / kLanes;
  const int top = 2 * (std::ilogb(std::bit_cast<float>(largest)) + 1);
  const int high = std::max(top - kUnitsBits, kLowest);
  int low = std::max(high - kUnitsBits, kLowest);
  Taken taken = square(high, low, values, vectors, rests.data());
  add_units(taken.high, high);
  add_units(taken.low, low);
  while (!taken.all) {
    low = std::max(low - kUnitsBits, kLowest);
    taken = take(low, vectors, rests.data());
    add_units(taken.low, low);
  }
}

/// Adds count * 2^unit.
void SquareSum::add_units(std::int64_t count, int unit) {
  const std::int64_t sign = count < 0 ? -1 : 1;
  auto rest = static_cast<std::uint64_t>(count * sign);
  auto k = static_cast<std::size_t>((unit - kLowest) / kDigitBits);
  const int shift = (unit - kLowest) % kDigitBits;
  digits_[k++] += sign * static_cast<std::int64_t>((rest << shift) & kDigitMask);
  for (rest >>= kDigitBits - shift; rest != 0; rest >>= kDigitBits) {
    digits_[k++] += sign * static_cast<std::int64_t>(rest & kDigitMask);
  }
}

void SquareSum::carry() {
  std::int64_t over = 0;
  for (std::int64_t& digit : digits_) {
    const std::int64_t value = digit + over;
    over = value >> kDigitBits;  // This rounds down, even if the value is negative.
    digit = value - over * (kDigitMask + 1);
  }
}

void SquareSum::add(const std::int32_t* limbs) {
  for (std::size_t k = 0; k < kDigits; ++k) {
    digits_[k] += limbs[k];
  }
  const auto count = [limbs](std::size_t k) { return limbs[k] + limbs[k + 1] * (kDigitMask + 1); };
  infinities_ += count(kDigits);
  nans_ += count(kDigits + 2);
  carry();
}

void SquareSum::store(std::int32_t* limbs) const {
  const auto put = [limbs](std::size_t k, std::int64_t value) {
    limbs[k] = static_cast<std::int32_t>(value & kDigitMask);
  };
  for (std::size_t k = 0; k < kDigits; ++k) {
    put(k, digits_[k]);
  }
  put(kDigits, infinities_);
  put(kDigits + 1, infinities_ >> kDigitBits);
  put(kDigits + 2, nans_);
  put(kDigits + 3, nans_ >> kDigitBits);
}

double SquareSum::value() const {
  if (nans_ > 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (infinities_ > 0) {
    return std::numeric_limits<double>::infinity();
  }
  const auto top = static_cast<std::ptrdiff_t>(
      digits_.rend() - std::find_if(digits_.rbegin(), digits_.rend(), [](auto d) { return d != 0; }));
  if (top == 0) {
    return 0;
  }
  // These are the 64 bits from the highest set bit downwards: four digits, completed with bits of the fifth.
  constexpr std::ptrdiff_t kTaken = 5;
  std::uint64_t bits = 0;
  for (std::ptrdiff_t k = top - 1; k > top - kTaken; --k) {
    bits = (bits << kDigitBits) | digit(k);
  }
  const int free = std::countl_zero(bits);
  const std::uint64_t fifth = digit(top - kTaken) << free;
  bits = (bits << free) | (fifth >> kDigitBits);
  // Lower bits only decide ties, so the lowest bit represents all of them (a sticky bit).
  bool more = (fifth & kDigitMask) != 0;
  for (std::ptrdiff_t k = 0; k < top - kTaken; ++k) {
    more = more || digit(k) != 0;
  }
  return std::ldexp(static_cast<double>(bits | (more ? 1U : 0U)),
                    kLowest + static_cast<int>(top - kTaken + 1) * kDigitBits - free);
}

/// Returns digit `k`. Digits below the lowest are 0.
std::uint64_t SquareSum::digit(std::ptrdiff_t k) const {
  return k < 0 ? 0 : static_cast<std::uint64_t>(digits_[static_cast<std::size_t>(k)]);
}

double norm_of(const std::int32_t* limbs) {
  SquareSum sum;
  sum.add(limbs);
  return std::sqrt(sum.value());
}

}  // namespace poprun
