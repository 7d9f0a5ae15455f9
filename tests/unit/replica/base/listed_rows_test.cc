#include "replica/base/listed_rows.h"

#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace poprun::listed_rows_test {
namespace {

/// Returns a text such as "0 1 ..36 38! ..24 63", in which the ! marks row 38 as standing out.
std::string text_of(const std::vector<ListedRow>& listed) {
  std::string text;
  for (const ListedRow& row : listed) {
    text += row.left_out > 0 ? fmt::format("..{} ", row.left_out) : "";
    text += fmt::format("{}{} ", row.index, row.stands_out ? "!" : "");
  }
  return text;
}

TEST(ListedRows, AreAllOfAFew) {
  EXPECT_EQ(text_of(listed_rows(1, 0)), "0 ");
  EXPECT_EQ(text_of(listed_rows(8, 3)), "0 1 2 3 4 5 6 7 ");
}

TEST(ListedRows, AreTheEndsOfManyAndTheOneThatStandsOut) {
  EXPECT_EQ(text_of(listed_rows(64, 38)), "0 1 ..36 38! ..24 63 ");
  EXPECT_EQ(text_of(listed_rows(64, 1)), "0 1! ..61 63 ");
  EXPECT_EQ(text_of(listed_rows(64, 63)), "0 1 ..61 63! ");
  EXPECT_EQ(text_of(listed_rows(9, 2)), "0 1 2! ..5 8 ");
}

TEST(ListedRows, LetTheLargestStandOut) {
  std::vector<int> figures(20, 3);
  figures[7] = 4;
  EXPECT_EQ(text_of(listed_by(figures, std::identity{})), "0 1 ..5 7! ..11 19 ");
}

TEST(ListedRows, AreAllWhereAllAreAskedFor) {
  EXPECT_EQ(all_rows(64).size(), 64U);
}

}  // namespace
}  // namespace poprun::listed_rows_test
