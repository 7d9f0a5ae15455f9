#include "replica/compiler/planner/plan.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/planner/plan_search.h"
#include "tests/unit/replica/compiler/planner/random_products.h"

namespace poprun::planner {
namespace {

using testing::few_tiles;
using testing::random_product;

/// Returns all steps of a plan.
std::vector<StepIndex> steps_of(const Splits& s) {
  std::vector<StepIndex> steps;
  for (std::int64_t i = 0; i < s.serial_inputs; ++i) {
    for (std::int64_t o = 0; o < s.serial_outputs; ++o) {
      steps.push_back({.input = i, .output = o});
    }
  }
  return steps;
}

/// The ranges of a dimension's parts, in the order of the dimension.
using Ranges = std::vector<Range>;

/// Returns whether the ranges cover 0 to `size` in order, without gaps or overlaps, and none of them is empty.
bool tiles_exactly(const Ranges& ranges, std::int64_t size) {
  std::int64_t end = 0;
  for (const Range& range : ranges) {
    if (range.begin != end || range.end <= range.begin) {
      return false;
    }
    end = range.end;
  }
  return end == size;
}

/// Calls visit(part, step, ranges) for every tile and step.
template <typename Visit>
void for_each_part(const Plan& plan, Visit visit) {
  for (std::int64_t tile = 0; tile < plan.splits.tiles(); ++tile) {
    const PartIndex part = plan.part_of(tile);
    for (const StepIndex& step : steps_of(plan.splits)) {
      visit(part, step, plan.ranges_of(part, step));
    }
  }
}

/// Counts, by visiting every tile and step, how often each (group, image, output channel, output place, input channel,
/// kernel place) of the viewed product is multiplied.
std::vector<int> brute_force_counts(const Plan& plan) {
  const Product& p = plan.viewed.product;
  const std::array<std::int64_t, 8> sizes = {p.groups,          p.batch,          p.output_channels, p.field[0].output,
                                             p.field[1].output, p.input_channels, p.field[0].kernel, p.field[1].kernel};
  std::int64_t total = 1;
  for (const std::int64_t size : sizes) {
    total *= size;
  }
  std::vector<int> counts(static_cast<std::size_t>(total));
  for_each_part(plan, [&](const PartIndex&, const StepIndex&, const PartRanges& r) {
    const std::array<Range, 8> ranges = {r.groups,  r.batch,  r.outputs,     r.rows,
                                         r.columns, r.inputs, r.kernel_rows, {0, sizes[7]}};
    std::array<std::int64_t, 8> at{};
    for (std::size_t d = 0; d < 8; ++d) {
      at[d] = ranges[d].begin;
    }
    for (bool more = true; more;) {
      std::int64_t offset = 0;
      for (std::size_t d = 0; d < 8; ++d) {
        offset = offset * sizes[d] + at[d];
      }
      ++counts[static_cast<std::size_t>(offset)];
      more = false;
      for (std::size_t d = 8; d-- > 0;) {
        if (++at[d] < ranges[d].end) {
          more = true;
          break;
        }
        at[d] = ranges[d].begin;
      }
    }
  });
  return counts;
}

/// Checks that the ranges of each dimension cover it exactly. Assumes, unlike brute_force_counts(), that the ranges of
/// a dimension depend only on that dimension's indices.
void expect_exact_cover(const Plan& plan) {
  const Splits& s = plan.splits;
  const Product& p = plan.viewed.product;
  const auto cover = [&plan](std::int64_t PartIndex::*part, std::int64_t parts, std::int64_t StepIndex::*step,
                             std::int64_t steps, Range PartRanges::*range, std::int64_t size) {
    Ranges ranges;
    for (std::int64_t j = 0; j < steps; ++j) {
      for (std::int64_t k = 0; k < parts; ++k) {
        PartIndex at_part;
        StepIndex at_step;
        at_part.*part = k;
        at_step.*step = j;
        ranges.push_back(plan.ranges_of(at_part, at_step).*range);
      }
    }
    return tiles_exactly(ranges, size);
  };
  const auto parallel = [&](std::int64_t PartIndex::*part, std::int64_t parts, Range PartRanges::*range,
                            std::int64_t size) { return cover(part, parts, &StepIndex::input, 1, range, size); };
  ASSERT_TRUE(parallel(&PartIndex::group, s.groups, &PartRanges::groups, p.groups));
  ASSERT_TRUE(parallel(&PartIndex::kernel, s.kernel, &PartRanges::kernel_rows, p.field[0].kernel));
  ASSERT_TRUE(parallel(&PartIndex::batch, s.batch, &PartRanges::batch, p.batch));
  ASSERT_TRUE(parallel(&PartIndex::row, s.rows, &PartRanges::rows, p.field[0].output));
  ASSERT_TRUE(parallel(&PartIndex::column, s.columns, &PartRanges::columns, p.field[1].output));
  ASSERT_TRUE(
      cover(&PartIndex::input, s.inputs, &StepIndex::input, s.serial_inputs, &PartRanges::inputs, p.input_channels));
  ASSERT_TRUE(cover(&PartIndex::output, s.outputs, &StepIndex::output, s.serial_outputs, &PartRanges::outputs,
                    p.output_channels));
}

/// All plans of 10,000 random shapes. The parameter is the seed.
class PlanProperty : public ::testing::TestWithParam<unsigned> {
 protected:
  static constexpr int kShapes = 1000;
};

TEST_P(PlanProperty, CoversEveryMultiplicationExactlyOnce) {
  std::mt19937 random(GetParam());
  const Device device = few_tiles(GetParam() % 2 == 0 ? 16 : 60);
  for (int k = 0; k < kShapes; ++k) {
    const Product product = random_product(random, 12);
    const Target target = target_of(device, product.arithmetic);
    for (const Plan& plan : find_plans(product, target)) {
      SCOPED_TRACE(to_text(product) + "\n" + to_line(plan));
      ASSERT_LE(plan.splits.tiles(), target.tiles);
      ASSERT_GE(plan.splits.tiles(), 1);
      expect_exact_cover(plan);
      if (HasFatalFailure()) {
        return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlanProperty, ::testing::Range(0U, 10U));

TEST(Plan, CoversSmallProductsExactlyOnceByBruteForce) {
  std::mt19937 random(1);
  for (int k = 0; k < 60; ++k) {
    const Product product = random_product(random, 4);
    const Target target = target_of(few_tiles(12), product.arithmetic);
    for (const Plan& plan : find_plans(product, target)) {
      const std::vector<int> counts = brute_force_counts(plan);
      ASSERT_EQ(std::ranges::count(counts, 1), static_cast<std::int64_t>(counts.size())) << to_text(product) << "\n"
                                                                                         << to_line(plan);
    }
  }
}

TEST(Plan, GivesEachPartATileOfItsOwn) {
  std::mt19937 random(2);
  for (int k = 0; k < 100; ++k) {
    const Product product = random_product(random, 12);
    const Target target = target_of(few_tiles(100), product.arithmetic);
    const std::vector<Plan> plans = find_plans(product, target);
    const Plan& plan = plans.front();
    for (std::int64_t tile = 0; tile < plan.splits.tiles(); ++tile) {
      ASSERT_EQ(plan.tile_of(plan.part_of(tile)), tile) << to_line(plan);
    }
  }
}

TEST(Plan, PutsNeighboursInOutputChannelsOnNeighbouringTiles) {
  Plan plan;
  plan.splits = {.groups = 2, .inputs = 3, .kernel = 1, .batch = 1, .rows = 5, .columns = 7, .outputs = 4};

  // (((group * 3 + input) * 5 + row) * 7 + column) * 4 + output.
  EXPECT_EQ(plan.tile_of({.group = 1, .input = 2, .row = 3, .column = 6, .output = 1}),
            (((1 * 3 + 2) * 5 + 3) * 7 + 6) * 4 + 1);
  EXPECT_EQ(plan.splits.tiles(), 2 * 3 * 5 * 7 * 4);
}

TEST(Plan, NoPartIsLargerThanTheLoadThatIsCharged) {
  std::mt19937 random(3);
  for (int k = 0; k < 300; ++k) {
    const Product product = random_product(random, 12);
    const Target target = target_of(few_tiles(30), product.arithmetic);
    for (const Plan& plan : find_plans(product, target)) {
      const Load load = load_of(plan.viewed, plan.vertex, target, plan.splits);
      std::int64_t sums = 0;
      std::int64_t weights = 0;
      for_each_part(plan, [&](const PartIndex&, const StepIndex&, const PartRanges& r) {
        sums = std::max(sums, r.groups.size() * r.batch.size() * r.rows.size() * r.columns.size() * r.outputs.size());
        weights = std::max(weights, r.groups.size() * r.inputs.size() * r.outputs.size() * r.kernel_rows.size() *
                                        plan.viewed.product.field[1].kernel);
      });
      ASSERT_LE(sums, load.sums) << to_line(plan);
      ASSERT_LE(weights, load.weight_elements) << to_line(plan);
    }
  }
}

/// Counts the different input elements that a part reads in one dimension, by the definition.
std::int64_t read_by(const FieldDimension& d, Range outputs, Range kernel) {
  std::vector<bool> read(static_cast<std::size_t>(d.input));
  for (std::int64_t y = outputs.begin; y < outputs.end; ++y) {
    for (std::int64_t k = kernel.begin; k < kernel.end; ++k) {
      const std::int64_t place = y * d.stride + k * d.kernel_dilation - d.padding;
      if (place >= 0 && place % d.input_dilation == 0 && place / d.input_dilation < d.input) {
        read[static_cast<std::size_t>(place / d.input_dilation)] = true;
      }
    }
  }
  return std::ranges::count(read, true);
}

TEST(Plan, ChargesEveryInputThatAPartReads) {
  std::mt19937 random(4);
  for (int k = 0; k < 300; ++k) {
    const Product product = random_product(random, 12);
    const Target target = target_of(few_tiles(30), product.arithmetic);
    for (const Plan& plan : find_plans(product, target)) {
      const Load load = load_of(plan.viewed, plan.vertex, target, plan.splits);
      const auto& field = plan.viewed.product.field;
      std::int64_t inputs = 0;
      for_each_part(plan, [&](const PartIndex&, const StepIndex&, const PartRanges& r) {
        inputs = std::max(inputs, r.groups.size() * r.batch.size() * r.inputs.size() *
                                      read_by(field[0], r.rows, r.kernel_rows) *
                                      read_by(field[1], r.columns, {0, field[1].kernel}));
      });
      ASSERT_LE(inputs, load.input_elements) << to_text(product) << "\n" << to_line(plan);
    }
  }
}

TEST(PartRange, CutsBlocksWithASmallerLastPart) {
  // 10 channels make 3 blocks of up to 4; the two parts have 2 blocks and 1 block.
  EXPECT_EQ(part_range(10, 4, 2, 0), (Range{0, 8}));
  EXPECT_EQ(part_range(10, 4, 2, 1), (Range{8, 10}));
}

}  // namespace
}  // namespace poprun::planner
