#include "launcher/verdict/replica_words.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace poprun::launcher {
namespace {

TEST(NumberRanges, AreShort) {
  EXPECT_EQ(number_ranges(std::vector<std::uint32_t>{0, 1, 2, 4, 6, 7}), "0-2, 4, 6, 7");
  EXPECT_EQ(number_ranges({}), "");
}

}  // namespace
}  // namespace poprun::launcher
