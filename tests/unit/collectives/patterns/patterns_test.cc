#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/patterns/canonical_tree.h"
#include "collectives/patterns/shares.h"

namespace poprun::collectives {
namespace {

TEST(CanonicalTree, LeftSubtreeIsTheLargestPowerOfTwoStrictlyBelow) {
  EXPECT_EQ(left_subtree(2), 1U);
  EXPECT_EQ(left_subtree(3), 2U);
  EXPECT_EQ(left_subtree(4), 2U);
  EXPECT_EQ(left_subtree(5), 4U);
  EXPECT_EQ(left_subtree(7), 4U);
  EXPECT_EQ(left_subtree(8), 4U);
  EXPECT_EQ(left_subtree(16), 8U);
  EXPECT_EQ(left_subtree(17), 16U);
}

std::vector<Subtree> subtrees(std::vector<std::size_t> replicas, std::size_t total) {
  return subtrees_of(replicas, total);
}

TEST(Subtrees, AreTheFewestThatHoldTheReplicas) {
  EXPECT_EQ(subtrees({4, 5, 6, 7}, 16), (std::vector<Subtree>{{4, 4}}));
  EXPECT_EQ(subtrees({2, 3, 4, 5}, 7), (std::vector<Subtree>{{2, 2}, {4, 2}}));
  EXPECT_EQ(subtrees({4, 5, 6}, 7), (std::vector<Subtree>{{4, 3}}));
  EXPECT_EQ(subtrees({0, 2, 4}, 5), (std::vector<Subtree>{{0, 1}, {2, 1}, {4, 1}}));
  EXPECT_EQ(subtrees({0, 1, 2}, 3), (std::vector<Subtree>{{0, 3}}));
  EXPECT_EQ(subtrees({5}, 6), (std::vector<Subtree>{{5, 1}}));
  EXPECT_TRUE(subtrees({}, 6).empty());
}

/// Returns the load of the busiest direction of any link, in units of the whole vector.
double load_of(const std::vector<std::size_t>& sums, const std::vector<double>& shares) {
  double load = 0;
  for (std::size_t h = 0; h < sums.size(); ++h) {
    double sent = static_cast<double>(sums[h]) * (1 - shares[h]);  // Sums for other combiners.
    double received = 1 - shares[h];                               // Results from other combiners.
    for (std::size_t g = 0; g < sums.size(); ++g) {
      sent += g == h ? 0 : shares[h];
      received += g == h ? 0 : static_cast<double>(sums[g]) * shares[h];
    }
    load = std::max({load, sent, received});
  }
  return load;
}

TEST(Shares, AreEqualWhereHostsBringOneSumEach) {
  for (std::size_t hosts = 2; hosts <= 9; ++hosts) {
    for (const double share : shares_of(std::vector<std::size_t>(hosts, 1))) {
      EXPECT_NEAR(share, 1.0 / static_cast<double>(hosts), 1e-12);
    }
  }
}

TEST(Shares, LetTheHostOfTwoCombineThatBringsMoreSums) {
  const auto share_of_first = [](std::size_t first, std::size_t second) {
    return shares_of(std::array{first, second})[0];
  };
  EXPECT_NEAR(share_of_first(2, 1), 1, 1e-12);
  EXPECT_NEAR(share_of_first(1, 3), 0, 1e-12);
  EXPECT_NEAR(share_of_first(2, 2), 0.5, 1e-12);
}

TEST(Shares, LeaveNoLighterLoadOnAnyGridOfShares) {
  constexpr int kGrid = 40;
  for (std::size_t a = 1; a <= 5; ++a) {
    for (std::size_t b = 1; b <= 5; ++b) {
      for (std::size_t c = 1; c <= 5; ++c) {
        const std::vector<std::size_t> sums = {a, b, c};
        const std::vector<double> shares = shares_of(sums);
        EXPECT_NEAR(shares[0] + shares[1] + shares[2], 1, 1e-12);
        EXPECT_GE(std::ranges::min(shares), 0);
        const double load = load_of(sums, shares);
        for (int x = 0; x <= kGrid; ++x) {
          for (int y = 0; x + y <= kGrid; ++y) {
            const std::vector<double> others = {1.0 * x / kGrid, 1.0 * y / kGrid, 1.0 * (kGrid - x - y) / kGrid};
            ASSERT_LE(load, load_of(sums, others) + 1e-9) << a << " " << b << " " << c << ", grid " << x << " " << y;
          }
        }
      }
    }
  }
}

// The groups in PopART's documentation: 12 replicas in groups of 4.
TEST(Members, OfConsecutiveGroupsAreNeighbours) {
  EXPECT_EQ(consecutive_members(4, 6).list(), (std::vector<std::size_t>{4, 5, 6, 7}));
  EXPECT_EQ(consecutive_members(1, 11).list(), (std::vector<std::size_t>{11}));
  EXPECT_EQ(consecutive_members(12, 7).count, 12U);
}

TEST(Members, OfOrthogonalGroupsAreAsFarApartAsThereAreGroups) {
  EXPECT_EQ(orthogonal_members(12, 4, 7).list(), (std::vector<std::size_t>{1, 4, 7, 10}));
  EXPECT_EQ(orthogonal_members(12, 1, 7).list(), (std::vector<std::size_t>{7}));
  EXPECT_EQ(orthogonal_members(12, 12, 7), consecutive_members(12, 7));
}

TEST(Members, KnowTheirOwnIndices) {
  const Members members = orthogonal_members(12, 4, 7);
  std::size_t held = 0;
  for (std::size_t replica = 0; replica < 12; ++replica) {
    if (members.contains(replica)) {
      EXPECT_EQ(members[members.index_of(replica)], replica);
      EXPECT_EQ(members.index_of(replica), held);
      ++held;
    }
  }
  EXPECT_EQ(held, 4U);
}

TEST(Slices, CutAtLines) {
  // 400 bytes take 7 cache lines, the last of them partly:  3 lines | 2 lines | 2 lines
  EXPECT_EQ(slice_of(400, 3, 0), (Slice{0, 192}));
  EXPECT_EQ(slice_of(400, 3, 1), (Slice{192, 320}));
  EXPECT_EQ(slice_of(400, 3, 2), (Slice{320, 400}));
}

TEST(Slices, LeaveTheLastPartsEmptyWhereLinesAreFew) {
  EXPECT_EQ(slice_of(68, 3, 0), (Slice{0, 64}));
  EXPECT_EQ(slice_of(68, 3, 1), (Slice{64, 68}));
  EXPECT_EQ(slice_of(68, 3, 2).size(), 0U);
  EXPECT_EQ(slice_of(0, 3, 1).size(), 0U);
}

TEST(Slices, CoverEverythingOnceAndDifferByALine) {
  for (const std::size_t count : {1U, 63U, 64U, 65U, 1'000U, 421'642U}) {
    for (std::size_t parts = 1; parts <= 20; ++parts) {
      std::size_t next = 0;
      std::size_t largest = 0;
      for (std::size_t part = 0; part < parts; ++part) {
        const Slice slice = slice_of(count, parts, part);
        ASSERT_EQ(slice.begin, next);
        next = slice.end;
        largest = std::max(largest, slice.size());
      }
      EXPECT_EQ(next, count);
      EXPECT_LE(largest, count / parts + 2 * kLineBytes);
    }
  }
}

TEST(Slices, OverlapIsEmptyWhereTheyDoNotMeet) {
  EXPECT_EQ(overlap({2, 8}, {5, 20}), (Slice{5, 8}));
  EXPECT_EQ(overlap({2, 8}, {8, 20}).size(), 0U);
  EXPECT_EQ(overlap({10, 12}, {0, 3}).size(), 0U);
}

}  // namespace
}  // namespace poprun::collectives
