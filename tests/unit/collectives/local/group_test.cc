#include <vector>

#include <gtest/gtest.h>

#include "collectives/local/call.h"

namespace poprun::collectives {
namespace {

TEST(Group, OfASizeThatDoesNotDivideNamesTheSizesThatDo) {
  const auto members = members_of(Group::orthogonal(5), 12, 3);

  ASSERT_FALSE(members);
  EXPECT_EQ(members.error().code, ErrorCode::kUsage);
  EXPECT_EQ(members.error().message,
            "groups of 5 replicas cannot be formed from 12 replicas; possible sizes are 1, 2, 3, 4, 6, 12");
  EXPECT_FALSE(members_of(Group::consecutive(0), 12, 3));
}

TEST(Group, OfAllNeedsNoSize) {
  EXPECT_EQ(*members_of(Group::all(), 7, 3), (Members{0, 1, 7}));
}

TEST(Group, IsListedInMessagesUpToSixteenMembers) {
  EXPECT_EQ(among(std::vector<std::size_t>{0, 4, 8, 12}), " of replicas 0, 4, 8, 12");
  EXPECT_EQ(among(std::vector<std::size_t>{8, 9, 10, 11}), " of replicas 8-11");

  std::vector<std::size_t> many(17);
  for (std::size_t i = 0; i < many.size(); ++i) {
    many[i] = 1 + 4 * i;
  }
  EXPECT_EQ(among(many), " of 17 replicas 1, 5 .. 65");
}

TEST(Group, IsDescribedByKindAndSize) {
  EXPECT_EQ(describe(call_of_group(Group::all())), "group (all)");
  EXPECT_EQ(describe(call_of_group(Group::consecutive(4))), "group (consecutive of 4)");
  EXPECT_EQ(describe(call_of_group(Group::orthogonal(2))), "group (orthogonal of 2)");
}

}  // namespace
}  // namespace poprun::collectives
