#include "replica/ops/optimizers/square_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "replica/ops/simd.h"

namespace poprun {
namespace {

constexpr std::int64_t kLanes = 8;
constexpr std::int64_t kBlock = 1024;  ///< Elements that are summed at a time.

/// Multiples of a unit below 2^44 units, of which a lane adds kBlock / kLanes = 2^7, have sums
/// below 2^51 units: exact in double, in any order.
constexpr int kUnitsBits = 44;

// Compilers turn operations on these into what the instruction set has.
using Floats __attribute__((vector_size(kLanes * sizeof(float)))) = float;
using Doubles __attribute__((vector_size(kLanes * sizeof(double)))) = double;

struct alignas(64) Block {
  double values[kBlock];
};

/// What a pass over a block finds.
struct Found {
  double sum = 0;   ///< Exact.
  double most = 0;  ///< The largest absolute value that is left.
};

double largest(const Doubles& lanes) {
  double most = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    most = std::max(most, lanes[lane]);
  }
  return most;
}

/// The squares of `vectors` times kLanes numbers, which are exact in double, and the largest of
/// them; NaN if one is not finite.
POPRUN_SIMD double square(const float* x, std::int64_t vectors, double* __restrict squares) {
  Doubles most{};
  Doubles zero{};
  for (std::int64_t v = 0; v < vectors; ++v) {
    Floats single;
    std::memcpy(&single, x + v * kLanes, sizeof single);
    const Doubles wide = __builtin_convertvector(single, Doubles);
    const Doubles p = wide * wide;
    std::memcpy(squares + v * kLanes, &p, sizeof p);
    most = p > most ? p : most;
    zero += p - p;
  }
  double finite = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    finite += zero[lane];
  }
  return finite + largest(most);
}

/// Takes from each value the nearest multiple of 2^unit, and leaves the rest. The sum is that of
/// what was taken, in units.
///
/// Requires: absolute values below 2^(unit + kUnitsBits).
POPRUN_SIMD Found take(int unit, std::int64_t vectors, double* __restrict values) {
  // Adding 1.5 * 2^52 units leaves no bits below the unit.
  const Doubles shift = std::ldexp(1.5, unit + 52) - Doubles{};
  Doubles taken{};
  Doubles most{};
  for (std::int64_t v = 0; v < vectors; ++v) {
    Doubles value;
    std::memcpy(&value, values + v * kLanes, sizeof value);
    const Doubles near = (value + shift) - shift;
    const Doubles rest = value - near;
    std::memcpy(values + v * kLanes, &rest, sizeof rest);
    taken += near;
    const Doubles size = rest < Doubles{} ? -rest : rest;
    most = size > most ? size : most;
  }
  double sum = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    sum += taken[lane];
  }
  return {std::ldexp(sum, -unit), largest(most)};
}

}  // namespace

void SquareSum::add(const float* values, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kBlock) {
    add_block(values + i, std::min(kBlock, n - i));
  }
  carry();
}

void SquareSum::add_block(const float* values, std::int64_t n) {
  alignas(64) float padded[kBlock];
  const std::int64_t vectors = (n + kLanes - 1) / kLanes;
  if (n % kLanes != 0) {
    std::fill(std::copy_n(values, n, padded), padded + vectors * kLanes, 0.0F);
    values = padded;
  }
  Block block;
  double most = square(values, vectors, block.values);
  if (!std::isfinite(most)) {
    most = 0;
    for (double& p : std::span(block.values, static_cast<std::size_t>(vectors * kLanes))) {
      nans_ += std::isnan(p) ? 1 : 0;
      infinities_ += std::isinf(p) ? 1 : 0;
      p = std::isfinite(p) ? p : 0.0;
      most = std::max(most, p);
    }
  }
  while (most > 0) {
    const int unit = std::max(std::ilogb(most) + 1 - kUnitsBits, kLowest);
    const Found found = take(unit, vectors, block.values);
    add_units(static_cast<std::int64_t>(found.sum), unit);
    most = found.most;
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
    over = value >> kDigitBits;  // Rounds down, whatever the sign.
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
  const auto top =
      static_cast<std::ptrdiff_t>(digits_.rend() - std::find_if(digits_.rbegin(), digits_.rend(),
                                                                [](auto d) { return d != 0; }));
  if (top == 0) {
    return 0;
  }
  // 64 bits from the highest that is set: four digits, and what the fifth adds to them.
  constexpr std::ptrdiff_t kTaken = 5;
  std::uint64_t bits = 0;
  for (std::ptrdiff_t k = top - 1; k > top - kTaken; --k) {
    bits = (bits << kDigitBits) | digit(k);
  }
  const int free = std::countl_zero(bits);
  const std::uint64_t fifth = digit(top - kTaken) << free;
  bits = (bits << free) | (fifth >> kDigitBits);
  // Whatever lies below only decides ties, as a lowest bit that is set.
  bool more = (fifth & kDigitMask) != 0;
  for (std::ptrdiff_t k = 0; k < top - kTaken; ++k) {
    more = more || digit(k) != 0;
  }
  return std::ldexp(static_cast<double>(bits | (more ? 1U : 0U)),
                    kLowest + static_cast<int>(top - kTaken + 1) * kDigitBits - free);
}

/// Digit `k`; those below the lowest are 0.
std::uint64_t SquareSum::digit(std::ptrdiff_t k) const {
  return k < 0 ? 0 : static_cast<std::uint64_t>(digits_[static_cast<std::size_t>(k)]);
}

}  // namespace poprun
