#include "replica/tables/ipu_table.h"

#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace poprun::ipu_table_test {
namespace {

/// "0 1 ..36 38! ..24 63", where the mark says that 38 stands out.
std::string text_of(const std::vector<ListedRow>& listed) {
  std::string text;
  for (const ListedRow& row : listed) {
    text += row.left_out > 0 ? fmt::format("..{} ", row.left_out) : "";
    text += fmt::format("{}{} ", row.index, row.stands_out ? "!" : "");
  }
  return text;
}

TEST(IpuTable, ListsAllOfAFew) {
  EXPECT_EQ(text_of(listed_rows(1, 0)), "0 ");
  EXPECT_EQ(text_of(listed_rows(8, 3)), "0 1 2 3 4 5 6 7 ");
}

TEST(IpuTable, ListsTheEndsOfManyAndTheOneThatStandsOut) {
  EXPECT_EQ(text_of(listed_rows(64, 38)), "0 1 ..36 38! ..24 63 ");
  EXPECT_EQ(text_of(listed_rows(64, 1)), "0 1! ..61 63 ");
  EXPECT_EQ(text_of(listed_rows(64, 63)), "0 1 ..61 63! ");
  EXPECT_EQ(text_of(listed_rows(9, 2)), "0 1 2! ..5 8 ");
}

TEST(IpuTable, LetsTheLargestStandOut) {
  std::vector<int> figures(20, 3);
  figures[7] = 4;
  EXPECT_EQ(text_of(listed_by(figures, std::identity{})), "0 1 ..5 7! ..11 19 ");
}

TEST(IpuTable, ListsAllWhereAllAreAskedFor) {
  EXPECT_EQ(all_rows(64).size(), 64U);
}

TEST(IpuTable, GivesBothTimesInOneUnit) {
  EXPECT_EQ(time_text(1.709e-3, 715.9e-6), "1.709 ms busy, 0.716 ms idle");
  EXPECT_EQ(time_text(600e-6, 500e-6), "0.600 ms busy, 0.500 ms idle");
  EXPECT_EQ(time_text(115.2e-6, 0), "115.2 us busy, 0.0 us idle");
  EXPECT_EQ(time_text(0.4, 0.7), "0.40 s busy, 0.70 s idle");
}

TEST(IpuTable, GivesMemoryWithoutZeroes) {
  EXPECT_EQ(memory_text(2'621'440, 940'572'672, 38'400), "2.5 MiB peak of 897.0 MiB, 37.5 KiB always live");
}

TEST(IpuTable, TellsTheHostsPartOfAStepAndWhatComesBesides) {
  EXPECT_EQ(host_text({.bytes_to_device = 602'112.0 * 20,
                       .bytes_from_device = 80'000,
                       .stream_seconds = 2.19e-3,
                       .calls = 1,
                       .call_seconds = 1.85e-3}),
            "11.5 MiB in, 78.1 KiB out, 2.190 ms of it; 1 call, 1.850 ms on top (fitted)");
  EXPECT_EQ(host_text({.bytes_to_device = 12.5,
                       .bytes_from_device = 0,
                       .stream_seconds = 1e-6,
                       .calls = 1.0 / 100,
                       .call_seconds = 18.5e-6}),
            "12 B in, 0 B out, 1.0 us of it; 1 call in 100, 18.5 us on top (fitted)");
}

TEST(IpuTable, TellsWhatOfTransfersByIoTilesIsHidden) {
  EXPECT_EQ(io_text(5.01e-3, 1.81e-3), "5.010 ms, 3.200 ms of it overlapped with the other tiles' work");
}

}  // namespace
}  // namespace poprun::ipu_table_test
