#include "replica/report/tile_contents.h"

#include <random>

#include <gmock/gmock.h>

namespace poprun {
namespace {

using ::testing::ElementsAre;

/// Adds a claim with bytes on each of the tiles, each of which is a separate class.
void claim(proto::IpuMemory& memory, const std::string& category,
           const std::vector<std::pair<std::uint32_t, std::uint32_t>>& lives, const std::vector<std::uint64_t>& bytes) {
  proto::TileLayout& layout = *memory.mutable_layout();
  proto::TileClaim& claim = *layout.add_claims();
  claim.set_category(category);
  for (const auto& [first, last] : lives) {
    proto::Span& span = *claim.add_lives();
    span.set_first(first);
    span.set_last(last);
  }
  for (std::size_t tile = 0; tile < bytes.size(); ++tile) {
    if (layout.classes_size() <= static_cast<int>(tile)) {
      layout.add_classes()->add_tiles(static_cast<std::uint32_t>(tile));
    }
    layout.mutable_classes(static_cast<int>(tile))->add_bytes(bytes[tile]);
  }
}

std::vector<std::int64_t> counts(const std::vector<Bytes>& bytes) {
  std::vector<std::int64_t> counts;
  for (const Bytes one : bytes) {
    counts.push_back(one.count());
  }
  return counts;
}

/// Returns the memory of an IPU. Tile 1 stores, at steps 0 to 4:
///
///   step                  0   1   2   3   4
///   code    always live   8   8   8   8   8
///   x       [1, 2]            40  40
///   y       [2, 2] [4, 4]         16      16
proto::IpuMemory two_tiles() {
  proto::IpuMemory memory;
  claim(memory, "vertex code", {{0, 4}}, {8, 8});
  claim(memory, "tensors", {{1, 2}}, {0, 40});
  claim(memory, "temporaries", {{2, 2}, {4, 4}}, {24, 16});
  return memory;
}

TEST(TileContents, ListWhatLivesLargestFirst) {
  const proto::IpuMemory memory = two_tiles();
  const std::vector<HeldBytes> held = held_on_tile(memory, 1, 2);
  ASSERT_EQ(held.size(), 3);
  EXPECT_EQ(held[0].claim, 1);
  EXPECT_EQ(held[0].category, "tensors");
  EXPECT_EQ(held[0].bytes, Bytes{40});
  EXPECT_FALSE(held[0].always_live);
  EXPECT_EQ(held[1].claim, 2);
  EXPECT_EQ(held[2].claim, 0);
  EXPECT_TRUE(held[2].always_live);
  EXPECT_EQ(held_on_tile(memory, 0, 1).size(), 1) << "x has no bytes there";
}

TEST(TileContents, AddUpOverAllTiles) {
  const std::vector<HeldBytes> held = held_on_ipu(two_tiles(), 2);
  ASSERT_EQ(held.size(), 3);
  EXPECT_EQ(held[0].bytes, Bytes{40});
  EXPECT_EQ(held[1].bytes, Bytes{40});
  EXPECT_EQ(held[2].bytes, Bytes{16});
  EXPECT_EQ(held[0].claim, 1) << "equal ones in the order of claims";
}

TEST(LivenessCurve, SetsAlwaysLiveApart) {
  const LivenessCurve curve = liveness_of_tile(two_tiles(), 1);
  EXPECT_EQ(curve.always, Bytes{8});
  EXPECT_THAT(counts(curve.not_always), ElementsAre(0, 40, 56, 0, 16));
  EXPECT_EQ(curve.worst_step(), 2);
  EXPECT_EQ(curve.most(), Bytes{64});
  EXPECT_THAT(counts(liveness_of_ipu(two_tiles()).not_always), ElementsAre(0, 40, 80, 0, 40));
}

TEST(LivenessCurve, IsFlatWhereNothingLies) {
  const LivenessCurve curve = liveness_of_ipu({});
  EXPECT_EQ(curve.worst_step(), 0);
  EXPECT_EQ(curve.most(), Bytes{0});
}

TEST(LivenessCurve, IsTheSumOfWhatEachStepHolds) {
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    proto::IpuMemory memory;
    for (int i = 0; i < 12; ++i) {
      const auto first = static_cast<std::uint32_t>(random() % 8);
      claim(memory, "tensors", {{first, first + static_cast<std::uint32_t>(random() % 8)}},
            {random() % 3 * 8, random() % 5 * 8});
    }
    for (const std::uint32_t tile : {0U, 1U}) {
      const LivenessCurve curve = liveness_of_tile(memory, tile);
      Bytes most;
      for (std::uint32_t step = 0; step < curve.not_always.size(); ++step) {
        Bytes live;
        Bytes always;
        for (const HeldBytes& held : held_on_tile(memory, tile, step)) {
          live += held.bytes;
          always += held.always_live ? held.bytes : Bytes{};
        }
        EXPECT_EQ(always, curve.always);
        EXPECT_EQ(live, curve.always + curve.not_always[step]);
        most = std::max(most, live);
      }
      EXPECT_EQ(most, curve.most());
    }
  }
}

TEST(TileContents, AreOfTheKindOfTheLargestTensor) {
  Program program;
  for (const auto& [role, bytes] : {std::pair{proto::ROLE_STREAM, 8U}, {proto::ROLE_PARAMETER, 16U}}) {
    program.add_tensors()->set_role(role);
    program.mutable_tensors(program.tensors_size() - 1)->set_bytes(bytes);
  }
  proto::TileClaim claim;
  claim.set_category("tensors");
  claim.add_tensors(0);
  EXPECT_EQ(kind_of(program, claim), "host data");
  claim.add_tensors(1);
  EXPECT_EQ(kind_of(program, claim), "weights");
  claim.set_category("stashes");
  EXPECT_EQ(kind_of(program, claim), "stashes");
  claim.clear_tensors();
  EXPECT_EQ(main_tensor(program, claim), nullptr);
}

TEST(OperationText, NamesTheOperationAndItsUse) {
  Program program;
  proto::Function& function = *program.add_functions();
  function.set_name("train");
  proto::Step& repeat = *function.add_steps();
  repeat.set_number(2);
  repeat.mutable_repeat()->set_count(4);
  proto::Step& conv = *repeat.mutable_repeat()->add_steps();
  conv.set_number(1);
  conv.mutable_execute()->set_operation("conv2d");
  conv.mutable_execute()->set_name("conv1");
  proto::Step& sum = *function.add_steps();
  sum.set_number(3);
  sum.mutable_all_reduce()->add_tensors(0);
  const auto text = [&](std::uint32_t number) { return operation_text(*find_step(program, number).value().step); };
  EXPECT_EQ(text(1), "conv2d 'conv1'");
  EXPECT_EQ(text(2), "Repeat(count: 4)");
  EXPECT_EQ(text(3), "all_reduce of 1 tensor");
  EXPECT_FALSE(find_step(program, 9));
}

}  // namespace
}  // namespace poprun
