#include "replica/report/report.h"

#include <map>
#include <random>

#include <gmock/gmock.h>

namespace poprun::report_test {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr std::uint32_t kSteps = 12;
constexpr std::uint64_t kTileBytes = 256;

Device device() {
  Device device;
  device.name = "small";
  device.tiles = 4;
  device.bytes_per_tile = Bytes{kTileBytes};
  device.macs_per_cycle_f32 = 16;
  device.macs_per_cycle_f16 = 32;
  return device;
}

/// Returns a Program that executes one operator at each step, named "op0" and so on.
Program program_of_steps() {
  Program program;
  proto::Function& function = *program.add_functions();
  function.set_name("train");
  for (std::uint32_t s = 0; s < kSteps; ++s) {
    proto::Step& step = *function.add_steps();
    step.set_number(s);
    step.mutable_execute()->set_operation("relu");
    step.mutable_execute()->set_name("op" + std::to_string(s));
  }
  return program;
}

struct Expected {
  std::uint32_t first, last;
  std::string category;
  std::vector<std::uint64_t> bytes;  ///< Bytes on each tile.
};

/// Returns a claim of code for the whole run, followed by random claims; tiles 2 and 3 belong to one class.
std::vector<Expected> random_claims(std::mt19937& random) {
  std::vector<Expected> claims = {{0, kSteps - 1, "code", {8, 8, 16, 16}}};
  for (int i = 0; i < 15; ++i) {
    const auto first = static_cast<std::uint32_t>(random() % kSteps);
    const auto last = std::min(kSteps - 1, first + static_cast<std::uint32_t>(random() % 5));
    const std::uint64_t both = random() % 4 * 8;
    claims.push_back(
        {first, last, random() % 2 == 0 ? "tensors" : "temporaries", {random() % 6 * 8, random() % 3 * 8, both, both}});
  }
  return claims;
}

/// Returns a Program whose plan never reuses a byte: claims are placed one above the other.
Program with_memory(const std::vector<Expected>& claims) {
  Program program = program_of_steps();
  proto::IpuMemory& memory = *program.add_memory();
  memory.set_bytes_per_tile(kTileBytes);
  memory.set_capacity(4 * kTileBytes);
  proto::TileLayout& layout = *memory.mutable_layout();
  for (const std::vector<std::uint32_t>& tiles : {std::vector<std::uint32_t>{0}, {1}, {2, 3}}) {
    proto::TileClass& one = *layout.add_classes();
    one.mutable_tiles()->Assign(tiles.begin(), tiles.end());
    std::uint64_t end = 0;
    for (const Expected& claim : claims) {
      one.add_bytes(claim.bytes[tiles[0]]);
      one.add_offsets(end);
      end += claim.bytes[tiles[0]];
    }
    one.set_peak(end);
    memory.set_peak(memory.peak() + end * tiles.size());
  }
  for (std::size_t i = 0; i < claims.size(); ++i) {
    proto::TileClaim& claim = *layout.add_claims();
    claim.set_category(claims[i].category);
    proto::Span& span = *claim.add_lives();
    span.set_first(claims[i].first);
    span.set_last(claims[i].last);
    if (claims[i].category == "tensors") {
      claim.add_tensors(static_cast<std::uint32_t>(program.tensors_size()));
      proto::Tensor& tensor = *program.add_tensors();
      tensor.set_name("t" + std::to_string(i));
      tensor.set_role(proto::ROLE_ACTIVATION);
      *tensor.add_lives() = span;
    }
  }
  return program;
}

/// Returns the bytes of `category`, or of all categories, that are live at a step on tiles from..to.
std::uint64_t live(const std::vector<Expected>& claims, std::uint32_t step, std::size_t from, std::size_t to,
                   const std::string& category = "") {
  std::uint64_t sum = 0;
  for (const Expected& claim : claims) {
    for (std::size_t tile = from; tile <= to; ++tile) {
      const bool counts = category.empty() || claim.category == category;
      sum += counts && claim.first <= step && step <= claim.last ? claim.bytes[tile] : 0;
    }
  }
  return sum;
}

void expect_liveness(const proto::Liveness& found, const std::vector<Expected>& claims, std::size_t from,
                     std::size_t to) {
  ASSERT_EQ(found.not_always_live_size(), static_cast<int>(kSteps));
  std::uint64_t most = 0;
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    const std::uint64_t expected = live(claims, step, from, to);
    EXPECT_EQ(found.always_live() + found.not_always_live(static_cast<int>(step)), expected);
    most = std::max(most, expected);
  }
  ASSERT_GT(found.peaks_size(), 0);
  EXPECT_EQ(found.peaks(0).bytes(), most);
  EXPECT_EQ(found.peaks(0).step(), found.worst_step());
  for (const proto::Peak& peak : found.peaks()) {
    EXPECT_EQ(peak.bytes(), live(claims, peak.step(), from, to));
    EXPECT_EQ(peak.operation(), "relu 'op" + std::to_string(peak.step()) + "'");
    if (peak.step() > 0) {
      EXPECT_LT(live(claims, peak.step() - 1, from, to), peak.bytes());
    }
  }
}

TEST(Report, AgreesWithEveryClaimCountedByItself) {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    const std::vector<Expected> claims = random_claims(random);
    const Program program = with_memory(claims);
    const proto::Report found = report(program, device(), {.tiles = {{.tile = 1}, {.ipu = 0, .tile = 3}, {.tile = 1}}});

    ASSERT_THAT(found.ipus(), SizeIs(1));
    const proto::IpuReport& ipu = found.ipus(0);
    expect_liveness(ipu.liveness(), claims, 0, 3);
    ASSERT_THAT(ipu.tiles(), SizeIs(2)) << "each once";
    expect_liveness(ipu.tiles(0).liveness(), claims, 1, 1);
    expect_liveness(ipu.tiles(1).liveness(), claims, 3, 3);
    for (int c = 0; c < found.categories_size(); ++c) {
      const bool tensors = found.categories(c) == "activations";
      EXPECT_EQ(ipu.at_peak().always_live(c) + ipu.at_peak().not_always_live(c),
                live(claims, ipu.liveness().worst_step(), 0, 3, tensors ? "tensors" : found.categories(c)));
    }
    std::uint64_t peaks = 0;
    for (const proto::TileClassReport& one : ipu.classes()) {
      EXPECT_EQ(one.peak(), one.always_live() + one.not_always_live() + one.gaps());
      EXPECT_EQ(one.overflowed(), one.peak() > kTileBytes ? one.peak() - kTileBytes : 0);
      for (const proto::Span& tiles : one.tiles()) {
        peaks += one.peak() * (tiles.last() - tiles.first() + 1);
        for (std::uint32_t tile = tiles.first(); tile <= tiles.last(); ++tile) {
          EXPECT_EQ(one.always_live() + one.not_always_live(), live(claims, one.worst_step(), tile, tile));
        }
      }
    }
    EXPECT_EQ(peaks, ipu.peak());
    EXPECT_EQ(ipu.balance().mean(), peaks / 4);
  }
}

TEST(Report, ListsVariablesLargestFirstWithLivesAndTiles) {
  const std::vector<Expected> claims = {
      {0, 11, "vertex code", {8, 8, 8, 8}}, {3, 5, "tensors", {0, 16, 24, 24}}, {4, 4, "temporaries", {16, 0, 0, 0}}};
  const proto::Report found = report(with_memory(claims), device());

  ASSERT_THAT(found.variables(), SizeIs(3));
  const proto::Variable& x = found.variables(0);
  EXPECT_EQ(x.name(), "t1");
  EXPECT_EQ(x.bytes(), 64U);
  EXPECT_EQ(x.tiles(), 3U);
  EXPECT_EQ(x.first_tile(), 1U);
  EXPECT_EQ(x.last_tile(), 3U);
  EXPECT_EQ(x.largest_share(), 24U);
  EXPECT_FALSE(x.always_live());
  EXPECT_EQ(x.lives(0).first(), 3U);
  EXPECT_EQ(found.variables(1).name(), "vertex code");
  EXPECT_TRUE(found.variables(1).always_live());
  EXPECT_EQ(found.variables(2).name(), "temporaries of 'op4'");
}

TEST(Report, NamesBytesThatTensorsShareAfterTheLargest) {
  Program program = with_memory({{0, 11, "code", {8, 8, 8, 8}}, {2, 6, "tensors", {8, 8, 8, 8}}});
  proto::Tensor& whole = *program.add_tensors();
  whole.set_name("whole");
  whole.set_bytes(32);
  program.mutable_memory(0)->mutable_layout()->mutable_claims(1)->add_tensors(1);
  const proto::Report found = report(program, device());
  EXPECT_EQ(found.variables(0).name(), "code");
  EXPECT_EQ(found.variables(1).name(), "whole");
  EXPECT_THAT(found.variables(1).shared_with(), ElementsAre("t1"));
}

/// Returns a Program whose "train" calls "body" in 3 rounds. "body" runs a product twice, and "load" runs it, too.
Program calling_program() {
  Program program;
  program.set_ipus(1);
  program.add_tensors()->set_type("f32[4]");
  std::uint32_t number = 0;
  const auto add_step = [&](google::protobuf::RepeatedPtrField<proto::Step>& steps) -> proto::Step& {
    proto::Step& step = *steps.Add();
    step.set_number(number++);
    return step;
  };
  proto::Function& load = *program.add_functions();
  load.set_name("load");
  add_step(*load.mutable_steps()).mutable_call()->set_function("body");
  proto::Function& train = *program.add_functions();
  train.set_name("train");
  proto::Repeat& rounds = *add_step(*train.mutable_steps()).mutable_repeat();
  rounds.set_count(3);
  add_step(*rounds.mutable_steps()).mutable_call()->set_function("body");
  proto::Step& sum = add_step(*train.mutable_steps());
  sum.mutable_all_reduce()->add_tensors(0);
  sum.mutable_cost()->set_link_cycles(7);
  proto::Function& body = *program.add_functions();
  body.set_name("body");
  proto::Repeat& twice = *add_step(*body.mutable_steps()).mutable_repeat();
  twice.set_count(2);
  proto::Step& product = add_step(*twice.mutable_steps());
  product.mutable_execute()->set_operation("matmul");
  product.mutable_execute()->set_name("fc");
  product.mutable_execute()->add_inputs(0);
  product.mutable_execute()->add_outputs(0);
  product.mutable_execute()->set_plan("AMP");
  product.mutable_cost()->set_compute_cycles(90);
  product.mutable_cost()->set_sync_cycles(10);
  product.mutable_cost()->set_flops(6400);
  return program;
}

TEST(Report, CountsOperatorsThroughRoundsAndCallsOfAStep) {
  const proto::Report found = report(calling_program(), device());

  ASSERT_THAT(found.operators(), SizeIs(2));
  EXPECT_EQ(found.operators(0).operation(), "all_reduce of 1 tensor");
  EXPECT_EQ(found.operators(0).calls(), 1U);
  const proto::OperatorRow& fc = found.operators(1);
  EXPECT_EQ(fc.function(), "body");
  EXPECT_EQ(fc.host_function(), "train");
  EXPECT_EQ(fc.calls(), 6U);
  EXPECT_EQ(fc.cost().compute_cycles(), 540U);
  EXPECT_EQ(fc.cost().flops(), 38400U);
  EXPECT_EQ(fc.plan(), "AMP");
  EXPECT_DOUBLE_EQ(fc.share_of_peak(), 6400.0 / (100 * 2 * 16 * 4));
  EXPECT_THAT(fc.ipus(), ElementsAre(0));
}

TEST(Report, HasTheProgramAsATree) {
  const proto::Report found = report(calling_program(), device());
  ASSERT_THAT(found.functions(), SizeIs(3));
  EXPECT_EQ(found.functions(1).nodes(0).text(), "Repeat(count: 3)");
  EXPECT_EQ(found.functions(1).nodes(0).nodes(0).text(), "Call(target: body)");
  EXPECT_EQ(found.functions(2).nodes(0).nodes(0).text(), "matmul 'fc'");
}

TEST(Report, LeavesOutIpusWhoseTilesAreNotPlanned) {
  Program program = program_of_steps();
  program.add_memory()->set_capacity(1024);
  EXPECT_THAT(report(program, device()).ipus(), SizeIs(0));
}

}  // namespace
}  // namespace poprun::report_test
