/// Exact sums of squares: their value is right, and their limbs do not depend on the order or the split of the data.

#include "replica/ops/optimizers/square_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace poprun {
namespace {

using Limbs = std::array<std::int32_t, SquareSum::kLimbs>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

SquareSum sum_of(const std::vector<float>& values) {
  SquareSum sum;
  sum.add(values.data(), static_cast<std::int64_t>(values.size()));
  return sum;
}

Limbs limbs_of(const SquareSum& sum) {
  Limbs limbs{};
  sum.store(limbs.data());
  return limbs;
}

/// A natural number in units of 2^-298, stored bit by bit: reference results by schoolbook arithmetic.
class Natural {
 public:
  void add_square(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t exponent = (bits >> 23U) & 0xFFU;
    const std::uint64_t mantissa = (bits & 0x7FFFFFU) | (exponent > 0 ? 1U << 23U : 0U);
    add(mantissa * mantissa, 2 * (std::max(exponent, 1U) - 1));
  }

  /// Returns the limbs of the number, in the format of SquareSum's header.
  [[nodiscard]] Limbs limbs() const {
    Limbs limbs{};
    for (std::size_t bit = 0; bit < bits_.size(); ++bit) {
      limbs[bit / 16] |= static_cast<std::int32_t>(bits_[bit]) << (bit % 16);
    }
    return limbs;
  }

  /// Returns the number rounded to nearest, with ties to even.
  [[nodiscard]] double rounded() const {
    std::size_t top = bits_.size();
    while (top > 0 && bits_[top - 1] == 0) {
      --top;
    }
    const std::size_t low = top > 53 ? top - 53 : 0;
    std::uint64_t mantissa = 0;
    for (std::size_t bit = top; bit-- > low;) {
      mantissa = 2 * mantissa + bits_[bit];
    }
    const bool half = low > 0 && bits_[low - 1] == 1;
    const bool more = low > 1 && std::ranges::count(std::span(bits_).first(low - 1), 1) > 0;
    mantissa += half && (more || mantissa % 2 == 1) ? 1U : 0U;
    return std::ldexp(static_cast<double>(mantissa), static_cast<int>(low) - 298);
  }

 private:
  void add(std::uint64_t number, std::size_t at) {
    int carry = 0;
    for (std::size_t bit = at; number != 0 || carry != 0; ++bit, number >>= 1) {
      const int sum = bits_.at(bit) + static_cast<int>(number & 1) + carry;
      bits_[bit] = static_cast<std::uint8_t>(sum & 1);
      carry = sum >> 1;
    }
  }

  std::vector<std::uint8_t> bits_ = std::vector<std::uint8_t>(38 * 16);
};

Natural exact_sum_of(const std::vector<float>& values) {
  Natural sum;
  for (const float x : values) {
    sum.add_square(x);
  }
  return sum;
}

enum class Kind {
  kAnyBits,    ///< Numbers of every size, including denormal numbers.
  kGradients,  ///< Numbers from a normal distribution.
  kAlike,      ///< Numbers just below 2, whose sum has more bits than any of them.
};

std::vector<float> numbers(std::uint32_t seed, std::size_t count, Kind kind) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.01F);
  std::uniform_real_distribution<float> alike(1.99F, 2);
  std::vector<float> values;
  while (values.size() < count) {
    const float x = kind == Kind::kAnyBits     ? std::bit_cast<float>(static_cast<std::uint32_t>(random()))
                    : kind == Kind::kGradients ? normal(random)
                                               : alike(random);
    if (std::isfinite(x)) {
      values.push_back(x);
    }
  }
  return values;
}

TEST(SquareSum, IsExact) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    for (const Kind kind : {Kind::kAnyBits, Kind::kGradients, Kind::kAlike}) {
      const std::vector<float> values = numbers(seed, 1 + seed * seed, kind);
      const Natural exact = exact_sum_of(values);
      EXPECT_EQ(limbs_of(sum_of(values)), exact.limbs()) << seed;
      EXPECT_EQ(sum_of(values).value(), exact.rounded()) << seed;
    }
  }
}

TEST(SquareSum, DoesNotDependOnTheOrder) {
  std::vector<float> values = numbers(1, 5000, Kind::kAnyBits);
  const Limbs reference = limbs_of(sum_of(values));
  std::mt19937 random(2);
  for (int i = 0; i < 20; ++i) {
    std::ranges::shuffle(values, random);
    EXPECT_EQ(limbs_of(sum_of(values)), reference);
  }
  std::ranges::sort(values);
  EXPECT_EQ(limbs_of(sum_of(values)), reference);
}

TEST(SquareSum, DoesNotDependOnTheCut) {
  const std::vector<float> values = numbers(3, 9000, Kind::kGradients);
  const Limbs reference = limbs_of(sum_of(values));
  std::mt19937 random(4);
  for (int i = 0; i < 20; ++i) {
    SquareSum in_one;
    Limbs of_replicas{};  // Added as an integer all-reduce does.
    for (std::size_t begin = 0; begin < values.size();) {
      const std::size_t size = std::min<std::size_t>(random() % 3000, values.size() - begin);
      SquareSum piece;
      piece.add(values.data() + begin, static_cast<std::int64_t>(size));
      in_one.add(values.data() + begin, static_cast<std::int64_t>(size));
      const Limbs limbs = limbs_of(piece);
      std::ranges::transform(of_replicas, limbs, of_replicas.begin(), std::plus<>{});
      begin += size;
    }
    SquareSum together;
    together.add(of_replicas.data());
    EXPECT_EQ(limbs_of(in_one), reference);
    EXPECT_EQ(limbs_of(together), reference);
    EXPECT_EQ(together.value(), sum_of(values).value());
  }
}

TEST(SquareSum, HoldsTheSumOver32768ReplicasInItsLimbs) {
  Limbs largest;
  largest.fill(0xFFFF);
  largest[37] = 1;  // A sum over all replicas, of at most 2^54 elements, also has this digit.
  largest[38] = largest[39] = largest[40] = largest[41] = 0;
  std::array<std::int64_t, SquareSum::kLimbs> exact{};
  for (int replica = 0; replica < 32768; ++replica) {
    std::ranges::transform(exact, largest, exact.begin(), std::plus<>{});
  }
  Limbs summed{};
  std::ranges::transform(exact, summed.begin(), [](std::int64_t limb) { return static_cast<std::int32_t>(limb); });
  SquareSum sum;

  sum.add(summed.data());

  EXPECT_TRUE(std::ranges::equal(exact, summed));
  SquareSum one;
  one.add(largest.data());
  EXPECT_EQ(sum.value(), one.value() * 32768);
}

TEST(SquareSum, HoldsTheExtremesOfTheFormat) {
  EXPECT_EQ(sum_of({}).value(), 0);
  EXPECT_EQ(sum_of({0.0F, -0.0F}).value(), 0);
  EXPECT_EQ(sum_of({3, -4}).value(), 25);
  EXPECT_EQ(sum_of({kSmallest}).value(), 0x1p-298);
  // The smallest square is lost in the rounded value, but not in the sum.
  EXPECT_EQ(sum_of({kSmallest, 0x1p-74F}).value(), 0x1p-148);
  EXPECT_EQ(limbs_of(sum_of({kSmallest, 0x1p-74F}))[0], 1);
  // A million of the largest squares exceed the range of float32, but not that of the sum.
  const std::vector<float> large(1'000'000, kLargest);
  EXPECT_EQ(sum_of(large).value(), 1e6 * static_cast<double>(kLargest) * static_cast<double>(kLargest));
  std::vector<float> both = large;
  both.push_back(kSmallest);
  EXPECT_EQ(limbs_of(sum_of(both))[0], 1);
}

TEST(SquareSum, RoundsTiesToEvenAndWhatIsAboveThemUp) {
  // 2^52 + 1/2 is a tie between 2^52 (even) and 2^52 + 1; 2^52 + 3/2 is a tie between 2^52 + 1 and 2^52 + 2 (even).
  const float half = std::ldexp(1.0F, 26);
  const auto with = [half](std::vector<float> more) {
    more.push_back(half);
    return sum_of(more).value();
  };
  EXPECT_EQ(with({0.5F, 0.5F}), 0x1p52);
  EXPECT_EQ(with({0.5F, 0.5F, kSmallest}), 0x1p52 + 1);
  EXPECT_EQ(with({1, 0.5F, 0.5F}), 0x1p52 + 2);
}

TEST(SquareSum, CarriesWhatIsNotFiniteAlong) {
  EXPECT_EQ(sum_of({1, kInfinity, 2}).value(), kInfinity);
  EXPECT_EQ(sum_of({1, -kInfinity}).value(), kInfinity);
  EXPECT_TRUE(std::isnan(sum_of({1, kNaN, kInfinity}).value()));
  const Limbs limbs = limbs_of(sum_of({kNaN, 3, -kInfinity, 4, kInfinity}));
  EXPECT_EQ(limbs[38], 2);
  EXPECT_EQ(limbs[40], 1);
  SquareSum finite_part;
  Limbs rest = limbs;
  rest[38] = rest[40] = 0;
  finite_part.add(rest.data());
  EXPECT_EQ(finite_part.value(), 25);
}

}  // namespace
}  // namespace poprun
