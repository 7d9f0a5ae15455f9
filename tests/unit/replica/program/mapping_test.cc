#include "replica/program/mapping.h"

#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace poprun {
namespace {

using Counts = std::vector<std::int64_t>;

/// Returns the tile of each element, in the order of memory.
Counts tile_of_elements(const Mapping& mapping, std::int64_t tiles) {
  Counts tile_of(static_cast<std::size_t>(mapping.elements()), -1);
  visit_elements(mapping, tiles, [&](std::int64_t tile, ElementRange range) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      EXPECT_EQ(tile_of.at(static_cast<std::size_t>(range.begin + i)), -1) << "visited twice";
      tile_of[static_cast<std::size_t>(range.begin + i)] = tile;
    }
  });
  return tile_of;
}

TEST(Mapping, CutsEachDimensionIntoParts) {
  const Mapping mapping{{{4, 2, 2}, {6, 3, 1}}, {}, 1, 0};
  const Counts expected = {
      0, 0, 0, 1, 1, 1,  //
      0, 0, 0, 1, 1, 1,  //
      2, 2, 2, 3, 3, 3,  //
      2, 2, 2, 3, 3, 3,
  };
  EXPECT_EQ(tile_of_elements(mapping, 8), expected);
  EXPECT_EQ(elements_by_tile(mapping, 8), (Counts{6, 6, 6, 6, 0, 0, 0, 0}));
  EXPECT_EQ(to_text(mapping), "4/2 x 6/2");
}

TEST(Mapping, LeavesTheLastPartSmallerWhereAnExtentDoesNotDivide) {
  const Mapping mapping{{{7, 3, 1}}, {}, 1, 2};
  EXPECT_EQ(tile_of_elements(mapping, 4), (Counts{2, 2, 2, 3, 3, 3, 0}));
  EXPECT_EQ(to_text(mapping), "7/3, from tile 2");
}

TEST(Mapping, SpreadsABoxOverTheTilesThatShareItInWholeGrains) {
  const Mapping mapping{{{10, 10, 0}}, {{4, 1}}, 2, 0};
  EXPECT_EQ(tile_of_elements(mapping, 4), (Counts{0, 0, 0, 0, 1, 1, 2, 2, 3, 3}));
}

TEST(Mapping, SharesABoxOfTwoDimensionsInTheOrderOfItsElements) {
  // There are two boxes of 2 x 2, and two tiles with a distance of two share each box.
  const Mapping mapping{{{2, 2, 0}, {4, 2, 1}}, {{2, 2}}, 1, 0};
  const Counts expected = {
      0, 0, 1, 1,  //
      2, 2, 3, 3,
  };
  EXPECT_EQ(tile_of_elements(mapping, 4), expected);
}

TEST(Mapping, IsEvenWhereItIsLinear) {
  EXPECT_EQ(elements_by_tile(linear_mapping(10, 1, 4), 4), (Counts{3, 3, 2, 2}));
  EXPECT_EQ(elements_by_tile(linear_mapping(10, 4, 4), 4), (Counts{4, 4, 2, 0}));
  EXPECT_EQ(elements_by_tile(linear_mapping(1, 4, 4), 4), (Counts{1, 0, 0, 0}));
}

TEST(Mapping, HoldsEveryElementOnceWhateverTheGrid) {
  std::mt19937 random(7);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random()) % (high - low + 1);
  };
  for (int round = 0; round < 2000; ++round) {
    Mapping mapping;
    const std::int64_t rank = draw(1, 4);
    for (std::int64_t d = 0; d < rank; ++d) {
      const std::int64_t extent = draw(1, 7);
      mapping.axes.push_back({extent, draw(1, extent), draw(0, 9)});
    }
    for (std::int64_t s = draw(0, 2); s > 0; --s) {
      mapping.shares.push_back({draw(1, 4), draw(1, 9)});
    }
    mapping.grain = draw(1, 5);
    mapping.first = draw(0, 15);
    const std::int64_t tiles = 16;
    const Counts tile_of = tile_of_elements(mapping, tiles);
    Counts counted(static_cast<std::size_t>(tiles));
    for (const std::int64_t tile : tile_of) {
      ASSERT_GE(tile, 0) << to_text(mapping) << ": an element was not visited";
      ++counted[static_cast<std::size_t>(tile)];
    }
    ASSERT_EQ(elements_by_tile(mapping, tiles), counted) << to_text(mapping);
  }
}

}  // namespace
}  // namespace poprun
