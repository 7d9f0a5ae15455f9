/// Balanced stages, compared with all possible splits.

#include "replica/compiler/techniques/stages/balance.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

LayerWeight weight(std::int64_t cycles, std::int64_t bytes = 0) {
  return {Cycles{cycles}, Bytes{bytes}};
}

constexpr Bytes kPlenty{1'000'000};

std::vector<std::size_t> balance(const std::vector<LayerWeight>& layers, std::size_t stages, Bytes capacity) {
  return poprun::balance({layers, std::vector<std::int64_t>(stages, 1), capacity});
}

TEST(Balance, GivesEveryStageAsManyEqualLayers) {
  const std::vector<LayerWeight> layers(8, weight(5));
  EXPECT_THAT(balance(layers, 4, kPlenty), ElementsAre(2, 4, 6));
  EXPECT_THAT(balance(layers, 1, kPlenty), IsEmpty());
}

TEST(Balance, KeepsTheSlowestStageFast) {
  const std::vector<LayerWeight> layers = {weight(1), weight(1), weight(1), weight(9)};
  EXPECT_THAT(balance(layers, 2, kPlenty), ElementsAre(3));
}

TEST(Balance, GivesMoreLayersToAStageThatRecomputesNothing) {
  const std::vector<LayerWeight> layers(8, weight(3));
  EXPECT_THAT(poprun::balance({layers, {1, 1}, kPlenty}), ElementsAre(4));
  EXPECT_THAT(poprun::balance({layers, {1, 1}, kPlenty, {true, false}}), ElementsAre(3));
  EXPECT_THAT(poprun::balance({layers, {1, 1}, kPlenty, {false, true}}), ElementsAre(5));
}

TEST(Balance, TakesASlowerCutWhereTheFasterOneDoesNotFit) {
  const std::vector<LayerWeight> layers = {weight(1, 60), weight(1, 60), weight(1, 10), weight(9, 10)};
  EXPECT_THAT(balance(layers, 2, Bytes{100}), ElementsAre(1));
}

TEST(Balance, SpreadsTheBytesWhereNothingFits) {
  const std::vector<LayerWeight> layers = {weight(9, 200), weight(1, 200), weight(1, 200), weight(1, 200)};
  EXPECT_THAT(balance(layers, 2, Bytes{100}), ElementsAre(2));
}

/// The largest excess over the capacity, the most cycles and the most bytes of any stage.
using Goodness = std::array<std::int64_t, 3>;

Goodness goodness(const std::vector<LayerWeight>& layers, std::vector<std::size_t> begins, Bytes capacity) {
  Goodness worst{};
  begins.insert(begins.begin(), 0);
  begins.push_back(layers.size());
  for (std::size_t s = 0; s + 1 < begins.size(); ++s) {
    LayerWeight sum;
    for (std::size_t l = begins[s]; l < begins[s + 1]; ++l) {
      sum.cycles += layers[l].cycles;
      sum.bytes += layers[l].bytes;
    }
    worst[0] = std::max(worst[0], (sum.bytes - capacity).count());
    worst[1] = std::max(worst[1], sum.cycles.count());
    worst[2] = std::max(worst[2], sum.bytes.count());
  }
  return worst;
}

/// Tries every way to cut, which is every subset of the places between layers; returns the best goodness.
Goodness best_of_all(const std::vector<LayerWeight>& layers, std::size_t stages, Bytes capacity) {
  Goodness best{INT64_MAX, INT64_MAX, INT64_MAX};
  for (std::uint32_t places = 0; places < 1U << (layers.size() - 1); ++places) {
    std::vector<std::size_t> begins;
    for (std::size_t l = 1; l < layers.size(); ++l) {
      if ((places >> (l - 1) & 1U) != 0) {
        begins.push_back(l);
      }
    }
    if (begins.size() + 1 == stages) {
      best = std::min(best, goodness(layers, begins, capacity));
    }
  }
  return best;
}

TEST(Balance, IsAsGoodAsTheBestOfAllWays) {
  std::mt19937 engine(7);
  const auto random = [&engine] { return static_cast<std::int64_t>(engine()); };
  for (int round = 0; round < 300; ++round) {
    const std::size_t count = 1 + engine() % 9;
    const std::size_t stages = 1 + engine() % count;
    std::vector<LayerWeight> layers;
    for (std::size_t l = 0; l < count; ++l) {
      layers.push_back(weight(random() % 20, random() % 20));
    }
    const Bytes capacity{random() % 60};

    const std::vector<std::size_t> begins = balance(layers, stages, capacity);

    ASSERT_EQ(begins.size(), stages - 1);
    ASSERT_EQ(goodness(layers, begins, capacity), best_of_all(layers, stages, capacity)) << "round " << round;
  }
}

/// Returns six layers with 10 B of weights and of activations; two IPUs keep activations of three micro-batches each.
Balancing six_layers(std::int64_t capacity) {
  return {std::vector<LayerWeight>(6, {Cycles{1}, Bytes{10}, Bytes{10}}), {3, 3}, Bytes{capacity}};
}

TEST(StageBytes, CountNoActivationsUntilASplitIsMeasured) {
  const Balancing six = six_layers(60);
  const StageBytes bytes(six, {});
  EXPECT_EQ(bytes(0, 0, 3), 30);
}

TEST(StageBytes, CorrectTheEstimateByWhatWasMeasured) {
  const Balancing six = six_layers(60);
  const std::vector<MeasuredSplit> measured = {{{3}, {Bytes{90}, Bytes{45}}}};
  const StageBytes bytes(six, measured);
  EXPECT_EQ(bytes(0, 0, 3), 90);
  EXPECT_EQ(bytes(0, 0, 2), 60) << "20 B, and activations twice";
  EXPECT_EQ(bytes(1, 3, 6), 45);
  EXPECT_EQ(bytes(1, 2, 6), 60) << "40 B, and half of the activations";
}

TEST(StageBytes, KeepWithTheStageWhatActivationsCannotExplain) {
  const Balancing six = six_layers(60);
  const std::vector<MeasuredSplit> measured = {{{1}, {Bytes{100}, Bytes{40}}}};
  const StageBytes bytes(six, measured);
  EXPECT_EQ(bytes(0, 0, 2), 140) << "20 B, activations three times, and 60 B";
  EXPECT_EQ(bytes(1, 2, 6), 30) << "40 B, and 10 B less than estimated";
}

TEST(StageBytes, RememberEveryMeasuredStage) {
  const Balancing six = six_layers(60);
  const std::vector<MeasuredSplit> measured = {{{3}, {Bytes{90}, Bytes{45}}}, {{2}, {Bytes{61}, Bytes{59}}}};
  const StageBytes bytes(six, measured);
  EXPECT_EQ(bytes(0, 0, 3), 90);
  EXPECT_EQ(bytes(0, 0, 2), 61);
}

TEST(Balance, FollowsTheMeasuredMemory) {
  const Balancing six = six_layers(60);
  EXPECT_THAT(poprun::balance(six), ElementsAre(3));
  const std::vector<MeasuredSplit> measured = {{{3}, {Bytes{90}, Bytes{45}}}};
  EXPECT_THAT(poprun::balance(six, measured), ElementsAre(2));
}

TEST(NextSplit, IsTheBalancedOneOrOneBesideIt) {
  const Balancing six = six_layers(60);
  std::vector<MeasuredSplit> measured = {{{3}, {Bytes{90}, Bytes{20}}}};
  EXPECT_EQ(next_split(six, measured), std::vector<std::size_t>{2}) << "60 B are estimated";
  measured.push_back({{2}, {Bytes{61}, Bytes{55}}});
  EXPECT_EQ(next_split(six, measured), std::vector<std::size_t>{1}) << "beside it";
  measured.push_back({{1}, {Bytes{50}, Bytes{62}}});
  EXPECT_EQ(next_split(six, measured), std::nullopt) << "both beside it have been measured";
}

TEST(NextSplit, IsNoneWhereAllIpusTogetherLackMoreThanAQuarter) {
  const Balancing six = six_layers(60);
  EXPECT_TRUE(next_split(six, std::vector<MeasuredSplit>{{{3}, {Bytes{75}, Bytes{75}}}}));
  EXPECT_FALSE(next_split(six, std::vector<MeasuredSplit>{{{3}, {Bytes{76}, Bytes{75}}}}));
}

}  // namespace
}  // namespace poprun
