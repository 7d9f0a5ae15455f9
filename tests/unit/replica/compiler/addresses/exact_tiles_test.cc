/// `memory.tiles = exact`: tensors are stored only in the memory of the tiles that they are mapped to.

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "replica/compiler/addresses/tile_plan.h"
#include "replica/engine/engine.h"
#include "replica/program/mapping.h"
#include "tests/unit/replica/compiled.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::exact_tiles_test {
namespace {

using testing::config;
using testing::dataset;
using testing::Outcome;
using testing::run_program;

/// Sets a device with so few tiles that the job uses much of the memory of each tile.
proto::RunConfig on_few_tiles(proto::RunConfig config, const std::string& tiles) {
  config.mutable_device()->set_tiles(24);
  config.mutable_device()->set_bytes_per_tile(1 << 20);
  config.mutable_memory()->set_tiles(tiles);
  return config;
}

Program compiled(const proto::RunConfig& config) {
  auto options = compile_options(config, dataset());
  EXPECT_TRUE(options) << options.error().message;
  auto program = compile(*options);
  EXPECT_TRUE(program) << program.error().message;
  return std::move(*program);
}

Outcome run_on(const proto::RunConfig& config, const std::string& tiles) {
  const proto::RunConfig whole = on_few_tiles(config, tiles);
  return run_program(whole, compiled(whole));
}

void expect_equal_bits(const Outcome& a, const Outcome& b) {
  ASSERT_FALSE(a.records[0].tensors.empty());
  EXPECT_EQ(a.records[0].tensors, b.records[0].tensors);
  ASSERT_EQ(a.records[0].steps.size(), b.records[0].steps.size());
  for (std::size_t i = 0; i < a.records[0].steps.size(); ++i) {
    EXPECT_EQ(a.records[0].steps[i].loss, b.records[0].steps[i].loss);
  }
}

TEST(ExactTiles, GiveTheBitsOfTensorsInOnePiece) {
  const proto::RunConfig job = config(2, 4);
  expect_equal_bits(run_on(job, "exact"), run_on(job, "contiguous"));
}

TEST(ExactTiles, GiveTheBitsOfTensorsInOnePieceInAPipeline) {
  proto::RunConfig job = config(1, 4);
  job.mutable_topology()->set_ipus_per_replica(2);
  job.mutable_training()->set_gradient_accumulation(4);
  expect_equal_bits(run_on(job, "exact"), run_on(job, "contiguous"));
}

TEST(ExactTiles, GiveTheBitsOfTensorsInOnePieceWhereTheyShareBytes) {
  proto::RunConfig job = config(1, 4);
  const Outcome plain = run_on(job, "contiguous");
  const Program apart = run_on(job, "exact").program;
  job.mutable_memory()->set_in_place(true);
  const Outcome shared = run_on(job, "exact");
  expect_equal_bits(shared, plain);
  EXPECT_LE(shared.program.memory(0).peak(), apart.memory(0).peak());
  EXPECT_LT(shared.program.memory(0).layout().claims_size(), apart.memory(0).layout().claims_size());
}

TEST(ExactTiles, AreUsedUpToThePlannedPeakOfEach) {
  const Outcome outcome = run_on(config(1, 4), "exact");
  const proto::IpuMemory& memory = outcome.program.memory(0);
  ASSERT_EQ(outcome.results[0].tile_high_water.size(), 1);
  const std::vector<Bytes>& marks = outcome.results[0].tile_high_water[0];
  ASSERT_EQ(marks.size(), 24);
  std::uint64_t total = 0;
  for (const proto::TileClass& one : memory.layout().classes()) {
    for (const std::uint32_t tile : one.tiles()) {
      EXPECT_EQ(static_cast<std::uint64_t>(marks[tile].count()), one.peak()) << "tile " << tile;
      total += one.peak();
    }
  }
  EXPECT_EQ(total, memory.peak());
  EXPECT_EQ(static_cast<std::uint64_t>(marks[memory.fullest_tile()].count()), memory.fullest_tile_peak());
}

TEST(ExactTiles, AreOutOfMemoryWhereTheFullestIsThoughAllTogetherHaveRoom) {
  proto::RunConfig job = on_few_tiles(config(1, 4), "exact");
  const Program roomy = compiled(job);
  const std::uint64_t fullest = roomy.memory(0).fullest_tile_peak();
  ASSERT_LT(roomy.memory(0).peak(), 24 * (fullest - 8)) << "tiles are unequal";
  job.mutable_device()->set_bytes_per_tile(fullest - 8);
  const auto refused = compile(*compile_options(job, dataset()));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(refused.error().message.find("tile " + std::to_string(roomy.memory(0).fullest_tile())), std::string::npos)
      << refused.error().message;
}

bool live_together(const proto::TileClaim& a, const proto::TileClaim& b) {
  return std::ranges::any_of(a.lives(), [&](const proto::Span& x) {
    return std::ranges::any_of(b.lives(),
                               [&](const proto::Span& y) { return x.first() <= y.last() && y.first() <= x.last(); });
  });
}

TEST(ExactTiles, GiveNoByteToTwoClaimsThatLiveTogether) {
  proto::RunConfig job = on_few_tiles(config(2, 4), "exact");
  job.mutable_memory()->set_in_place(true);
  const Program program = compiled(job);
  const proto::TileLayout& layout = program.memory(0).layout();
  for (const proto::TileClass& one : layout.classes()) {
    for (int a = 0; a < layout.claims_size(); ++a) {
      EXPECT_LE(one.bytes(a) == 0 ? 0 : one.offsets(a) + one.bytes(a), one.peak());
      for (int b = 0; b < a; ++b) {
        const bool overlap =
            one.offsets(a) < one.offsets(b) + one.bytes(b) && one.offsets(b) < one.offsets(a) + one.bytes(a);
        if (overlap && one.bytes(a) > 0 && one.bytes(b) > 0) {
          EXPECT_FALSE(live_together(layout.claims(a), layout.claims(b))) << a << " and " << b;
        }
      }
    }
  }
}

/// Returns the index of the tensor's claim in the layout of IPU 0.
int claim_of(const Program& program, const std::string& name) {
  const proto::TileLayout& layout = program.memory(0).layout();
  for (int i = 0; i < layout.claims_size(); ++i) {
    const proto::TileClaim& claim = layout.claims(i);
    for (const std::uint32_t tensor : claim.tensors()) {
      if (program.tensors(static_cast<int>(tensor)).name() == name) {
        return i;
      }
    }
  }
  ADD_FAILURE() << "no claim of " << name;
  return 0;
}

TEST(ExactTiles, LoseATensorWhoseAddressesAreWrong) {
  const proto::RunConfig job = on_few_tiles(config(1, 4), "exact");
  const Program right = compiled(job);
  Program wrong = right;
  const int moved = claim_of(right, "conv2.weight");
  const int other = claim_of(right, "fc1.weight");
  for (proto::TileClass& one : *wrong.mutable_memory(0)->mutable_layout()->mutable_classes()) {
    one.set_offsets(moved, one.offsets(other));
  }
  EXPECT_NE(run_program(job, wrong).records[0].tensors.at("conv2.weight"),
            run_program(job, right).records[0].tensors.at("conv2.weight"));
}

TEST(ExactTiles, LoseATensorWhoseBytesATemporaryTakes) {
  proto::RunConfig job = on_few_tiles(config(1, 4), "exact");
  job.mutable_training()->set_check_finite(false);
  const Program right = compiled(job);
  Program wrong = right;
  const int weight = claim_of(right, "fc1.weight");
  const auto& claims = right.memory(0).layout().claims();
  const auto temporary = std::ranges::find(claims, to_text(Category::kTemporary), &proto::TileClaim::category);
  ASSERT_NE(temporary, claims.end());
  const auto taker = static_cast<int>(temporary - claims.begin());
  for (proto::TileClass& one : *wrong.mutable_memory(0)->mutable_layout()->mutable_classes()) {
    if (one.bytes(weight) > 0) {
      one.set_offsets(taker, one.offsets(weight));
    }
  }
  EXPECT_NE(run_program(job, wrong).records[0].tensors.at("fc1.weight"),
            run_program(job, right).records[0].tensors.at("fc1.weight"));
}

}  // namespace
}  // namespace poprun::exact_tiles_test
