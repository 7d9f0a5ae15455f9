#include "replica/base/half.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "replica/base/random.h"

namespace poprun {
namespace {

std::vector<std::uint16_t> all_halves() {
  std::vector<std::uint16_t> halves(1U << 16U);
  std::iota(halves.begin(), halves.end(), std::uint16_t{0});
  return halves;
}

bool is_nan(std::uint16_t half) {
  return (half & 0x7fffU) > 0x7c00U;
}

/// Returns the value by definition: (-1)^s 2^(e - 15) (1 + f / 1024), or (-1)^s 2^-14 f / 1024 for e = 0.
double value_of(std::uint16_t half) {
  const int exponent = (half >> 10U) & 31;
  const int fraction = half & 1023;
  const double sign = half >> 15U != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
}

/// Searches for the finite non-negative half nearest to a value in [0, 65520).
std::uint16_t nearest_half(double value) {
  std::uint16_t low = 0;
  std::uint16_t high = 0x7c00;
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (value_of(middle) <= value ? low : high) = middle;
  }
  const double above = high == 0x7c00 ? 65536.0 : value_of(high);
  const double to_low = value - value_of(low);
  const double to_high = above - value;
  return to_low < to_high || (to_low == to_high && low % 2 == 0) ? low : high;
}

std::uint16_t half_of(float value) {
  std::uint16_t half = 0;
  to_halves(&value, &half, 1);
  return half;
}

TEST(Half, EveryOneOfThemBecomesItsFloat) {
  const std::vector<std::uint16_t> halves = all_halves();
  std::vector<float> floats(halves.size());

  to_floats(halves.data(), floats.data(), halves.size());

  for (const std::uint16_t half : halves) {
    if (is_nan(half)) {
      EXPECT_TRUE(std::isnan(floats[half])) << half;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(floats[half]),
                std::bit_cast<std::uint32_t>(static_cast<float>(value_of(half))))
          << half;
    }
  }
}

TEST(Half, ConversionThereAndBackChangesNothing) {
  const std::vector<std::uint16_t> halves = all_halves();
  std::vector<float> floats(halves.size());
  std::vector<std::uint16_t> back(halves.size());

  to_floats(halves.data(), floats.data(), halves.size());
  to_halves(floats.data(), back.data(), floats.size());

  for (const std::uint16_t half : halves) {
    EXPECT_EQ(back[half], is_nan(half) ? half | 0x0200U : half);
  }
}

TEST(Half, RoundsToNearestTiesToEven) {
  EXPECT_EQ(half_of(1.0F), 0x3c00U);
  EXPECT_EQ(half_of(1.0F + 0x1p-11F), 0x3c00U);             // Halfway between 1 and the next half: rounded to even.
  EXPECT_EQ(half_of(1.0F + 0x1p-11F + 0x1p-23F), 0x3c01U);  // A little more: rounded up.
  EXPECT_EQ(half_of(1.0F + 0x1.8p-10F), 0x3c02U);
  EXPECT_EQ(half_of(65504.0F), 0x7bffU);
  EXPECT_EQ(half_of(0x1.ffdffep+15F), 0x7bffU);  // The float below 65520.
  EXPECT_EQ(half_of(65520.0F), 0x7c00U);
  EXPECT_EQ(half_of(-1e30F), 0xfc00U);
  EXPECT_EQ(half_of(0x1p-24F), 1U);
  EXPECT_EQ(half_of(0x1p-25F), 0U);
  EXPECT_EQ(half_of(0x1.000002p-25F), 1U);
  EXPECT_EQ(half_of(-1e-40F), 0x8000U);
}

TEST(Half, RoundsAnyFloatToItsNearest) {
  for (std::uint32_t i = 0; i < 200'000; ++i) {
    const auto words = philox(3, i, 0);
    const float value = std::ldexp(1.0F + unit_float(words[0]), static_cast<int>(words[1] % 44) - 28);
    const std::uint16_t expected = value >= 65520.0F ? 0x7c00 : nearest_half(value);
    ASSERT_EQ(half_of(value), expected) << value;
    ASSERT_EQ(half_of(-value), expected | 0x8000U) << value;
  }
}

// Single elements are converted without vector instructions, as on processors that do not have them.
TEST(Half, VectorsAndSingleElementsGiveTheSameBits) {
  const std::vector<std::uint16_t> halves = all_halves();
  std::vector<float> floats(halves.size());
  to_floats(halves.data(), floats.data(), halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    float one = 0;
    to_floats(&halves[i], &one, 1);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(one), std::bit_cast<std::uint32_t>(floats[i])) << i;
  }
  // The values have every exponent and sign, with fractions around the points where rounding changes, and NaNs.
  std::vector<float> values;
  for (std::uint32_t top = 0; top < 1U << 16U; ++top) {
    for (const std::uint32_t low : {0x0000U, 0x0fffU, 0x1000U, 0x1001U, 0x2fffU, 0x3000U, 0xffffU}) {
      values.push_back(std::bit_cast<float>((top << 16U) | low));
    }
  }
  std::vector<std::uint16_t> rounded(values.size());
  to_halves(values.data(), rounded.data(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(half_of(values[i]), rounded[i]) << std::bit_cast<std::uint32_t>(values[i]);
  }
}

TEST(Half, RoundsAtRandomWithTheRightMean) {
  for (const float value : {1.0F + 0.3F * 0x1p-10F, -1000.17F, 3.3e-6F, 0x1.4p-25F, 65519.0F}) {
    double sum = 0;
    constexpr int kDraws = 8192;
    for (std::uint32_t k = 0; k < kDraws; ++k) {
      const Half half = to_half_at_random(value, k << 19U);
      sum += half == 0x7c00 ? 65536.0 : value_of(half);
    }
    const double step =
        std::abs(value) < 0x1p-14F ? 0x1p-24 : std::ldexp(1.0, std::ilogb(static_cast<double>(value)) - 10);
    EXPECT_NEAR(sum / kDraws, static_cast<double>(value), step / 8000) << value;
  }
}

TEST(Half, RoundingAtRandomLeavesAloneWhatIsExact) {
  for (const Half half : all_halves()) {
    if (!is_nan(half)) {
      ASSERT_EQ(to_half_at_random(to_float(half), 0xffff'ffffU), half);
    } else {
      ASSERT_TRUE(is_nan(to_half_at_random(to_float(half), 0)));
    }
  }
}

}  // namespace
}  // namespace poprun
