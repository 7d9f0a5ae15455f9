#include "replica/base/random.h"

#include <array>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace poprun {
namespace {

// The known answers are from the file kat_vectors of the authors' Random123 distribution, rows philox4x32 10.
TEST(Philox, AgreesWithTheAuthorsKnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ULL, ~0ULL, ~0ULL), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, IsTheSameInSequences) {
  constexpr std::uint64_t kFirst = 0xFFFFFFF0;  // The counter carries into its upper half.
  for (const std::size_t size : {0U, 1U, 63U, 64U, 65U, 200U}) {
    std::vector<std::uint32_t> words(size);
    philox_sequence(0x299f31d0a4093822, 0x85a308d3243f6a88, kFirst, words);
    for (std::size_t i = 0; i < size; ++i) {
      EXPECT_EQ(words[i], philox(0x299f31d0a4093822, 0x85a308d3243f6a88, kFirst + i / 4)[i % 4]) << i;
    }
  }
}

TEST(RandomKey, DiffersBySeedAndByName) {
  EXPECT_NE(random_key(1, "conv1.weight"), random_key(2, "conv1.weight"));
  EXPECT_NE(random_key(1, "conv1.weight"), random_key(1, "conv2.weight"));
}

TEST(UnitFloat, StaysBelowOne) {
  EXPECT_EQ(unit_float(0), 0.0F);
  EXPECT_LT(unit_float(0xFFFFFFFF), 1.0F);
}

}  // namespace
}  // namespace poprun
