#include "replica/base/text.h"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace poprun {
namespace {

TEST(Text, GroupsDigitsByThree) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(421642), "421,642");
  EXPECT_EQ(grouped(1000000U), "1,000,000");
  EXPECT_EQ(grouped(std::numeric_limits<std::uint64_t>::max()), "18,446,744,073,709,551,615");
}

TEST(Text, PutsNoCommaBehindAMinus) {
  EXPECT_EQ(grouped(-999), "-999");
  EXPECT_EQ(grouped(-1000), "-1,000");
}

TEST(Text, CountsOneAndMany) {
  EXPECT_EQ(counted(1, "replica"), "1 replica");
  EXPECT_EQ(counted(0, "epoch"), "0 epochs");
  EXPECT_EQ(counted(1872, "step"), "1,872 steps");
}

TEST(Text, ShowsBytesInMebibytesSoThatTheyCompare) {
  EXPECT_EQ(mebibytes_text(940572672), "897.0 MiB");
  EXPECT_EQ(mebibytes_text(std::uint64_t{5} << 30), "5,120.0 MiB");
  EXPECT_EQ(mebibytes_text(std::uint64_t{1} << 20), "1.0 MiB");
  EXPECT_EQ(mebibytes_text((std::uint64_t{1} << 20) / 10), "0.1 MiB");
}

TEST(Text, ShowsBytesThatWouldBeNoMebibytesInASmallerUnit) {
  EXPECT_EQ(mebibytes_text(52'428), "51.2 KiB");
  EXPECT_EQ(mebibytes_text(52'429), "0.1 MiB");
  EXPECT_EQ(mebibytes_text(1024), "1.0 KiB");
  EXPECT_EQ(mebibytes_text(1023), "1023 B");
  EXPECT_EQ(mebibytes_text(0), "0 B");
}

TEST(Text, PicksTheUnitOfADuration) {
  EXPECT_EQ(duration_text(1), "1.00 s");
  EXPECT_EQ(duration_text(0.01234), "12.340 ms");
  EXPECT_EQ(duration_text(56.7e-6), "56.7 us");
}

}  // namespace
}  // namespace poprun
