#include "replica/compiler/addresses/tile_plan.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

namespace poprun {
namespace {

/// Adds a claim of bytes[t] on each tile t.
void claim(TileClaims& claims, std::vector<Span> spans, const std::vector<std::int64_t>& bytes) {
  claims.add({}, std::move(spans), bytes);
}

TEST(TilePlan, PlansTilesWithEqualClaimsOnce) {
  TileClaims claims(4);
  claim(claims, {{0, 9}}, {16, 16, 16, 8});
  claim(claims, {{2, 3}}, {0, 24, 24, 0});
  const TilePlan plan = plan_tiles(claims, 10).value();
  ASSERT_EQ(plan.classes.size(), 3);
  EXPECT_EQ(plan.class_of_tile, (std::vector<std::uint32_t>{0, 1, 1, 2}));
  EXPECT_EQ(plan.classes[1].tiles, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(plan.classes[1].peak, Bytes{40});
  EXPECT_EQ(plan.classes[1].always_live, Bytes{16});
  EXPECT_EQ(plan.classes[1].worst_step, 2);
  EXPECT_EQ(plan.classes[0].peak, Bytes{16});
  EXPECT_EQ(plan.classes[2].peak, Bytes{8});
  EXPECT_EQ(plan.fullest(), 1);
  EXPECT_EQ(plan.total_peak(), Bytes{16 + 40 + 40 + 8});
}

TEST(TilePlan, GivesBytesOfTheDeadToOthers) {
  TileClaims claims(1);
  claim(claims, {{0, 1}}, {800});
  claim(claims, {{2, 3}}, {600});
  claim(claims, {{0, 3}}, {8});
  EXPECT_EQ(plan_tiles(claims, 4).value().classes[0].peak, Bytes{808});
}

TEST(TilePlan, AlignsToWhatATileLoadsAtOnce) {
  TileClaims claims(2);
  claim(claims, {{0, 0}}, {1, 0});
  claim(claims, {{0, 0}}, {9, 0});
  const TilePlan plan = plan_tiles(claims, 1).value();
  EXPECT_EQ(plan.classes[0].peak, Bytes{24});
  EXPECT_EQ(plan.classes[1].peak, Bytes{0});
}

TEST(TilePlan, NeverGivesAByteTwiceAtOneStep) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const auto tiles = static_cast<std::int64_t>(1 + random() % 6);
    TileClaims claims(tiles);
    for (int i = 0; i < 20; ++i) {
      const auto first = static_cast<std::uint32_t>(random() % 10);
      std::vector<std::int64_t> bytes;
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        bytes.push_back(random() % 3 == 0 ? 0 : static_cast<std::int64_t>(random() % 50));
      }
      claim(claims, {{first, first + static_cast<std::uint32_t>(random() % 5)}}, bytes);
    }
    const TilePlan plan = plan_tiles(claims, 15).value();
    for (std::size_t tile = 0; tile < static_cast<std::size_t>(tiles); ++tile) {
      const TileClass& one = plan.classes[plan.class_of_tile[tile]];
      for (std::uint32_t step = 0; step < 15; ++step) {
        std::map<std::int64_t, std::size_t> owner;  // The claim that owns each byte.
        for (std::size_t i = 0; i < claims.claims().size(); ++i) {
          const TileClaim& c = claims.claims()[i];
          const Span& span = claims.spans()[c.spans][0];
          if (step < span.first || span.last < step) {
            continue;
          }
          for (std::int64_t b = 0; b < claims.rows()[c.row][tile]; ++b) {
            const std::int64_t at = one.offsets[i].count() + b;
            ASSERT_TRUE(owner.emplace(at, i).second) << "byte " << at << " at step " << step;
            ASSERT_LT(at, one.peak.count());
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace poprun
