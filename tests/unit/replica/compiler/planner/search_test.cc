#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/planner/plan_search.h"
#include "tests/unit/replica/compiler/planner/random_products.h"

namespace poprun::planner {
namespace {

using ::testing::ElementsAre;
using testing::few_tiles;
using testing::random_product;

/// Identifies a plan and orders plans of the same cost.
using Key = std::tuple<std::int64_t, Splits, std::size_t>;  // Tiles, splits, view and vertex.
using Costs = std::pair<std::int64_t, std::int64_t>;        // Cycles, bytes.

/// Returns whether `size` can be cut into `parts` parts of equal size, none of them empty, and fewer would be larger.
bool cuts(std::int64_t size, std::int64_t parts) {
  const std::int64_t each = (size + parts - 1) / parts;
  return each * (parts - 1) < size && (parts == 1 || each < (size + parts - 2) / (parts - 1));
}

/// Tries every split of every dimension; returns the best plan for each pair of costs.
std::map<Costs, Key> all_plans(const Product& product, const Target& target) {
  std::map<Costs, Key> best;
  std::size_t way = 0;
  for (const ViewedProduct& viewed : views_of(product, target.block_inputs)) {
    const Product& p = viewed.product;
    for (const Vertex& vertex : vertices_for(p, target, product.arithmetic)) {
      const auto blocks = [](std::int64_t size, std::int64_t block) { return (size + block - 1) / block; };
      const std::int64_t groups = blocks(p.groups, vertex.groups);
      const std::int64_t inputs = blocks(p.input_channels, vertex.inputs);
      const std::int64_t outputs = blocks(p.output_channels, vertex.outputs);
      const auto splits_of = [&target](std::int64_t size) {
        std::vector<std::int64_t> counts;
        for (std::int64_t parts = 1; parts <= std::min(size, target.tiles); ++parts) {
          if (cuts(size, parts)) {
            counts.push_back(parts);
          }
        }
        return counts;
      };
      for (std::int64_t si = 1; si <= inputs; ++si) {
        for (std::int64_t so = 1; so <= (si == 1 ? outputs : 1); ++so) {
          if (inputs % si != 0 || outputs % so != 0) {
            continue;
          }
          for (const std::int64_t g : splits_of(groups)) {
            for (const std::int64_t i : splits_of(inputs / si)) {
              for (const std::int64_t k : splits_of(p.field[0].kernel)) {
                for (const std::int64_t b : splits_of(p.batch)) {
                  for (const std::int64_t r : splits_of(p.field[0].output)) {
                    for (const std::int64_t c : splits_of(p.field[1].output)) {
                      for (const std::int64_t o : splits_of(outputs / so)) {
                        const Splits s{g, i, k, b, r, c, o, si, so};
                        if (s.tiles() > target.tiles) {
                          continue;
                        }
                        const Cost cost = cost_of(viewed, vertex, target, load_of(viewed, vertex, target, s));
                        const Costs costs{cost.cycles.total().count(), cost.bytes.total().count()};
                        const Key key{s.tiles(), s, way};
                        const auto [at, added] = best.emplace(costs, key);
                        at->second = std::min(at->second, key);
                      }
                    }
                  }
                }
              }
            }
          }
        }
      }
      ++way;
    }
  }
  return best;
}

/// Returns the costs that no other costs beat, by rising cycles.
std::vector<std::pair<Costs, Key>> unbeaten(const std::map<Costs, Key>& plans) {
  std::vector<std::pair<Costs, Key>> found;
  for (const auto& plan : plans) {
    const bool beaten = std::ranges::any_of(plans, [&plan](const auto& other) {
      return other.first != plan.first && other.first.first <= plan.first.first &&
             other.first.second <= plan.first.second;
    });
    if (!beaten) {
      found.push_back(plan);
    }
  }
  return found;
}

/// The parameter is the seed.
class SearchProperty : public ::testing::TestWithParam<unsigned> {};

TEST_P(SearchProperty, FindsWhatTryingEverySplitFinds) {
  std::mt19937 random(GetParam());
  const std::int64_t tiles = GetParam() % 3 == 0 ? 7 : GetParam() % 3 == 1 ? 16 : 40;
  for (int k = 0; k < 12; ++k) {
    const Product product = random_product(random, 6);
    const Target target = target_of(few_tiles(tiles), product.arithmetic);

    const std::vector<Plan> plans = find_plans(product, target);

    const auto expected = unbeaten(all_plans(product, target));
    ASSERT_EQ(plans.size(), expected.size()) << to_text(product);
    for (std::size_t n = 0; n < plans.size(); ++n) {
      EXPECT_EQ((Costs{plans[n].cycles().count(), plans[n].temporary_bytes().count()}), expected[n].first)
          << to_text(product);
      EXPECT_EQ(plans[n].splits, std::get<1>(expected[n].second)) << to_text(product) << "\n" << to_line(plans[n]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, SearchProperty, ::testing::Range(0U, 12U));

TEST(PartCounts, AreTheOnesWithDifferentSizesOfAPart) {
  EXPECT_THAT(part_counts(10, 100), ElementsAre(1, 2, 3, 4, 5, 10));
  EXPECT_THAT(part_counts(10, 4), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(part_counts(1, 4), ElementsAre(1));
}

TEST(Frontier, KeepsTheSamePointsInAnyOrderOfOffers) {
  std::mt19937 random(5);
  std::vector<Candidate> candidates;
  for (int k = 0; k < 200; ++k) {
    Candidate c{.cycles = Cycles{static_cast<std::int64_t>(random() % 20)},
                .bytes = Bytes{static_cast<std::int64_t>(random() % 20)},
                .tiles = static_cast<std::int64_t>(random() % 3) + 1,
                .splits = {},
                .way = 0};
    c.splits.batch = static_cast<std::int64_t>(random() % 5) + 1;
    candidates.push_back(c);
  }
  const auto points_of = [](const std::vector<Candidate>& offers) {
    Frontier frontier;
    for (const Candidate& c : offers) {
      frontier.offer(c);
    }
    std::vector<std::tuple<Cycles, Bytes, std::int64_t, Splits>> points;
    for (const Candidate& c : frontier.points()) {
      points.emplace_back(c.cycles, c.bytes, c.tiles, c.splits);
    }
    return points;
  };
  const auto points = points_of(candidates);
  for (std::size_t n = 1; n < points.size(); ++n) {
    EXPECT_LT(std::get<0>(points[n - 1]), std::get<0>(points[n]));
    EXPECT_GT(std::get<1>(points[n - 1]), std::get<1>(points[n]));
  }
  for (int k = 0; k < 20; ++k) {
    std::ranges::shuffle(candidates, random);
    EXPECT_EQ(points_of(candidates), points);
  }
}

}  // namespace
}  // namespace poprun::planner
