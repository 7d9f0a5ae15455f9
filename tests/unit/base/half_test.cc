#include "replica/base/half.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace poprun {
namespace {

/// The value of a half by its definition.
double defined_value(Half half) {
  const double sign = (half & 0x8000U) != 0 ? -1.0 : 1.0;
  const int exponent = (half >> 10U) & 0x1F;
  const double fraction = half & 0x3FFU;
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, exponent - 25));
}

bool is_finite(Half half) {
  return (half & 0x7C00U) != 0x7C00U;
}

/// The finite half nearest to `value`, the even one of two, by trying all of one sign.
Half nearest_by_search(double value) {
  Half best = 0;
  for (Half half = 0; is_finite(half); ++half) {
    const double distance = std::abs(defined_value(half) - std::abs(value));
    const double best_distance = std::abs(defined_value(best) - std::abs(value));
    if (distance < best_distance || (distance == best_distance && half % 2 == 0)) {
      best = half;
    }
  }
  return static_cast<Half>(best | (std::signbit(value) ? 0x8000U : 0U));
}

TEST(Half, EveryFiniteHalfBecomesItsValueAndComesBack) {
  for (std::uint32_t bits = 0; bits <= 0xFFFFU; ++bits) {
    const auto half = static_cast<Half>(bits);
    if (is_finite(half)) {
      ASSERT_EQ(static_cast<double>(half_to_float(half)), defined_value(half)) << bits;
      ASSERT_EQ(float_to_half(half_to_float(half)), half);
      ASSERT_EQ(float_to_half_stochastic(half_to_float(half), 0xFFFFFFFFU), half) << bits;
    }
  }
}

TEST(Half, InfinityAndNanStayThemselves) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(half_to_float(0x7C00), kInfinity);
  EXPECT_EQ(half_to_float(0xFC00), -kInfinity);
  EXPECT_TRUE(std::isnan(half_to_float(0x7C01)));
  EXPECT_EQ(float_to_half(kInfinity), 0x7C00);
  EXPECT_EQ(float_to_half(-kInfinity), 0xFC00);
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(std::nanf("")))));
  EXPECT_EQ(float_to_half_stochastic(kInfinity, 0xFFFFFFFFU), 0x7C00);
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half_stochastic(std::nanf(""), 0))));
}

TEST(Half, RoundsToNearestEvenEverywhere) {
  for (const float value : {1.0F, 0.1F, -0.1F, 1.0F + 0x1p-11F, 1.0F + 0x1p-11F + 0x1p-20F,
                            1.0F + 3 * 0x1p-11F, 3e-8F, 2.9e-8F, -5.96e-8F, 0x1p-25F, 0x1.8p-24F,
                            6.1e-5F, 6.09e-5F, 65503.0F, 65519.0F, 1e-30F, -0.0F}) {
    EXPECT_EQ(float_to_half(value), nearest_by_search(static_cast<double>(value))) << value;
  }
  EXPECT_EQ(float_to_half(65519.99F), 0x7BFF);
  EXPECT_EQ(float_to_half(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_half(1e9F), 0x7C00);
}

TEST(Half, StochasticRoundingKeepsTheMean) {
  for (const float value : {1.0F + 0.3F * 0x1p-10F, -1000.17F, 3.3e-6F, 0x1.4p-25F}) {
    double sum = 0;
    constexpr int kDraws = 8192;
    for (std::uint32_t k = 0; k < kDraws; ++k) {
      sum += static_cast<double>(half_to_float(float_to_half_stochastic(value, k << 19U)));
    }
    const double step = std::abs(value) < 0x1p-14F
                            ? 0x1p-24
                            : std::ldexp(1.0, std::ilogb(static_cast<double>(value)) - 10);
    EXPECT_NEAR(sum / kDraws, static_cast<double>(value), step / 8000) << value;
  }
}

}  // namespace
}  // namespace poprun
