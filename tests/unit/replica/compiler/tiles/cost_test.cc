/// Device time of operations on four tiles of an Mk2, whose tensors are spread unevenly or are on other tiles. A tile
/// reads 8 B per cycle from its own memory and 4 B per cycle from other tiles.

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/addresses/demand.h"
#include "replica/compiler/lives/liveness.h"
#include "replica/compiler/tiles/operation_time.h"
#include "replica/compiler/tiles/product_layout.h"

namespace poprun {
namespace {

using ::testing::ElementsAre;

Device four_tiles() {
  Device device = *find_device("mk2");
  device.tiles = 4;
  return device;
}

/// Rows 0 to 29 of f32[40,6], 180 elements, are on tile 0; the other 60 elements are on tile 1.
const Mapping kUneven = {{{40, 30, 1}, {6, 6, 0}}, {}, 1, 0};
const Mapping kEven = linear_mapping(240, 2, 4);

/// One operation on tensors a, b and c f32[40,6], s f32[6], and stash f32[3,40,6].
class OneOperation {
 public:
  explicit OneOperation(const std::string& operation) {
    auto graph = parse_graph(R"(
      tensor a : f32[40,6] activation
      tensor b : f32[40,6] activation
      tensor c : f32[40,6] activation
      tensor s : f32[6] activation
      tensor stash : f32[3,40,6] activation
      function train
      repeat 1
      )" + operation + "\n");
    EXPECT_TRUE(graph) << graph.error().message;
    graph_ = *std::move(graph);
    mappings_.resize(graph_.tensors().size(), kEven);
    lay("s", linear_mapping(6, 2, 1));
    lay("stash", {{{3, 3, 0}, {40, 30, 1}, {6, 6, 0}}, {}, 1, 0});
  }

  OneOperation& lay(std::string_view tensor, const Mapping& mapping) {
    mappings_[index_of(graph_.find(tensor))] = mapping;
    return *this;
  }

  [[nodiscard]] DeviceTime time() const {
    Moves moves(graph_, mappings_, device_);
    return cost_of_operation(device_, {}, graph_, operation(), nullptr, &moves);
  }

  [[nodiscard]] DeviceTime time_as_view() const {
    Moves moves(graph_, mappings_, device_);
    return cost_of_view(device_, operation(), moves);
  }

  /// Returns the bytes of temporary values on each tile while the operation runs.
  [[nodiscard]] std::vector<std::int64_t> temporaries() const {
    const Liveness liveness = compute_liveness(graph_);
    const TileClaims claims = demand_on_tiles({graph_, liveness, ProductPlans{}, Aliases{}, mappings_, device_}, 0);
    std::vector<std::int64_t> bytes(4);
    for (const TileClaim& claim : claims.claims()) {
      if (claim.category == Category::kTemporary) {
        std::ranges::transform(bytes, claims.rows()[claim.row], bytes.begin(), std::plus());
      }
    }
    return bytes;
  }

  [[nodiscard]] const Operation& operation() const { return graph_.functions[0].regions[0].operations[0]; }

 private:
  Graph graph_;
  std::vector<Mapping> mappings_;
  Device device_ = four_tiles();
};

// Cycles that each compute set, and each exchange that moves data, adds.
const Cycles kCall = four_tiles().call_cycles;
const Cycles kStart = four_tiles().exchange_start_cycles;

TEST(Cost, AnElementwiseOperatorTakesAsLongAsTheFullestTile) {
  const OneOperation even("b = relu(a)");
  // Each tile reads and writes 60 elements: 480 B.
  EXPECT_EQ(even.time().compute, kCall + Cycles{60});

  OneOperation uneven("b = relu(a)");
  uneven.lay("a", kUneven).lay("b", kUneven);
  // Tile 0 reads and writes 180 elements: 1,440 B.
  EXPECT_EQ(uneven.time().compute, kCall + Cycles{180});
  EXPECT_EQ(uneven.time().exchange, Cycles{0});
  EXPECT_EQ(uneven.time().sync, four_tiles().sync_cycles);
  EXPECT_EQ(uneven.time().flops, even.time().flops);
}

TEST(Cost, AnOperandThatLiesElsewhereIsReceivedByTheTilesOfTheResult) {
  OneOperation add("c = add(a, b)");
  add.lay("a", kUneven).lay("c", kUneven);
  // Tile 0 reads two numbers and writes one for each of its 180 elements: 2,160 B at 8 B per cycle. It receives 180
  // numbers of b, 720 B at 4 B per cycle, without a further exchange phase.
  EXPECT_EQ(add.time().compute, kCall + Cycles{270});
  EXPECT_EQ(add.time().exchange, kStart + Cycles{180});
  EXPECT_EQ(add.time().sync, four_tiles().sync_cycles);

  add.lay("b", kUneven);
  EXPECT_EQ(add.time().exchange, Cycles{0});
}

TEST(Cost, ASmallOperandIsSpreadOverAllTiles) {
  OneOperation add("c = add(a, s)");
  // The 24 B of s are on three tiles, which send 8 B each.
  EXPECT_EQ(add.time().exchange, kStart + Cycles{2});
}

TEST(Cost, WhatIsReceivedIsHeldMeanwhile) {
  OneOperation add("c = add(a, b)");
  EXPECT_THAT(add.temporaries(), ElementsAre(0, 0, 0, 0));

  add.lay("a", kUneven).lay("c", kUneven);
  EXPECT_THAT(add.temporaries(), ElementsAre(180 * 4, 60 * 4, 0, 0));

  OneOperation sum(R"(s = sum_to(a) shape=[6] layout="row-major")");
  EXPECT_THAT(sum.temporaries(), ElementsAre(0, 0, 0, 0)) << "its result is written where it lies";
}

TEST(Cost, AReductionWorksWhereItsOperandLies) {
  OneOperation sum(R"(s = sum_to(a) shape=[6] layout="row-major")");
  sum.lay("a", kUneven);
  // 960 B are read and 24 B are written, 984 B / 4 per tile if even. Tile 0 has 180 of the 240 elements, so it counts
  // three times as much: 738 B, in 93 cycles.
  EXPECT_EQ(sum.time().compute, kCall + Cycles{93});
  // The result of 24 B arrives on one tile. The exchange that the operator declares is only 18 B per tile.
  EXPECT_EQ(sum.time().exchange, kStart + Cycles{6});
}

TEST(Cost, AStashIsWrittenWhereItsEntriesLie) {
  OneOperation alike("stash = stash(a)");
  alike.lay("a", kUneven);
  // 180 numbers are read and written.
  EXPECT_EQ(alike.time().compute, kCall + Cycles{180});
  EXPECT_EQ(alike.time().exchange, Cycles{0});

  const OneOperation elsewhere("stash = stash(a)");
  EXPECT_EQ(elsewhere.time().compute, kCall + Cycles{60});
  EXPECT_EQ(elsewhere.time().exchange, kStart + Cycles{180}) << "720 B of an entry on tile 0";

  OneOperation restored("a = restore(stash)");
  EXPECT_EQ(restored.time().exchange, kStart + Cycles{60}) << "240 B on each tile";
  restored.lay("a", kUneven);
  EXPECT_EQ(restored.time().exchange, Cycles{0});
}

TEST(Cost, AViewTakesTimeOnlyWhereItLiesOnOtherTiles) {
  OneOperation view("b = reshape(a) shape=[40,6]");
  EXPECT_EQ(view.time_as_view().total(), Cycles{0});

  view.lay("b", kUneven);
  EXPECT_EQ(view.time_as_view().exchange, kStart + Cycles{180});
  EXPECT_EQ(view.time_as_view().sync, four_tiles().sync_cycles);
  EXPECT_EQ(view.time_as_view().compute, Cycles{0});
}

TEST(Cost, OperandsOfAProductThatLieOtherwiseThanItReadsThemAreRegrouped) {
  const Device device = four_tiles();
  auto graph = parse_graph(R"(
      tensor x : f32[64,32] activation
      tensor w : f32[16,32] parameter
      tensor b : f32[16] parameter
      tensor y : f32[64,16] activation
      function train
      repeat 1
      y = linear(x, w, b)
  )");
  ASSERT_TRUE(graph) << graph.error().message;
  const Operation& product = graph->functions[0].regions[0].operations[0];
  const std::optional<PlannedProduct> planned = plan_operation(*graph, product, device);
  ASSERT_TRUE(planned);
  ASSERT_EQ(planned->plan->viewed.copied_input, 0) << "else the plan rearranges it anyway";
  const ProductLayout layout = layout_of(*planned->plan, planned->axes);
  const auto time = [&](const Mapping& x, const Mapping& w) {
    const std::vector<Mapping> mappings = {x, w, linear_mapping(16, 2, 4), layout.output};
    Moves moves(*graph, mappings, device);
    return cost_of_operation(device, {}, *graph, product, &*planned, &moves);
  };
  const DeviceTime as_planned = time(layout.input, layout.weights);
  EXPECT_EQ(as_planned.total(), time_of_plan(device, *planned->plan, Bytes{64 * 32 * 4}).total());

  // A quarter of 8,192 B arrives on each tile. The plan already counts the time to write it.
  const Mapping all_on_one = linear_mapping(64 * 32, 2, 1);
  const DeviceTime other_input = time(all_on_one, layout.weights);
  EXPECT_EQ(other_input.exchange, as_planned.exchange + kStart + Cycles{512});
  EXPECT_EQ(other_input.compute, as_planned.compute);

  // A quarter of the 2,048 B of weights arrives on each tile at 4 B per cycle, and is written at 8 B per cycle.
  const DeviceTime other_weights = time(layout.input, linear_mapping(16 * 32, 2, 1));
  if (planned->plan->splits.serial() == 1) {
    EXPECT_EQ(other_weights.exchange, as_planned.exchange + kStart + Cycles{128});
    EXPECT_EQ(other_weights.compute, as_planned.compute + Cycles{64});
  }
  EXPECT_EQ(other_weights.sync, as_planned.sync);
}

}  // namespace
}  // namespace poprun
