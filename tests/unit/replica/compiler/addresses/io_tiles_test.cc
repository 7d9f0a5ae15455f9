/// I/O tiles: what is stored on them, which transfers they hide, and that results stay bit-identical.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/addresses/tile_plan.h"
#include "replica/program/mapping.h"
#include "replica/program/timeline.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::io_tiles_test {
namespace {

using testing::config;
using testing::dataset;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;

Program compiled(const proto::RunConfig& config) {
  auto options = compile_options(config, dataset());
  EXPECT_TRUE(options) << options.error().message;
  options->tile_layout = true;
  auto program = compile(*options);
  EXPECT_TRUE(program) << program.error().message;
  return std::move(*program);
}

std::string refusal(const proto::RunConfig& config) {
  const auto options = compile_options(config, dataset());
  return options ? "" : options.error().message;
}

proto::RunConfig with_io_tiles(proto::RunConfig config, std::uint32_t io_tiles) {
  config.mutable_device()->set_io_tiles(io_tiles);
  return config;
}

/// Returns a job on a device of 32 tiles, with optimiser state and accumulators off-chip.
proto::RunConfig small_job(std::uint32_t io_tiles) {
  proto::RunConfig job = with_io_tiles(config(2, 4), io_tiles);
  testing::set_optimizer(job, "adam");
  job.mutable_training()->set_gradient_accumulation(3);
  job.mutable_device()->set_tiles(32);
  job.mutable_device()->set_bytes_per_tile(1 << 20);
  job.mutable_memory()->set_tiles("exact");
  job.mutable_memory()->set_in_place(true);
  job.mutable_memory()->set_optimizer_state("off-chip");
  job.mutable_memory()->set_accumulators("off-chip");
  return job;
}

std::int64_t transferred(const Program& program, const proto::Step& step, bool in) {
  std::int64_t bytes = 0;
  const StepTensors tensors = tensors_of(step);
  for (const std::uint32_t id : in ? tensors.writes : tensors.reads) {
    bytes += static_cast<std::int64_t>(program.tensors(static_cast<int>(id)).bytes());
  }
  return bytes;
}

void find_largest(const Program& program, const google::protobuf::RepeatedPtrField<proto::Step>& steps,
                  proto::Transfer direction, std::int64_t& largest) {
  for (const proto::Step& step : steps) {
    find_largest(program, step.repeat().steps(), direction, largest);
    if (step.transfer() == direction) {
      largest = std::max(largest, transferred(program, step, direction == proto::TRANSFER_IN));
    }
  }
}

/// Returns the bytes of the largest transfer on I/O tiles, rounded up to a multiple of 8.
std::int64_t largest_transfer(const Program& program, proto::Transfer direction) {
  std::int64_t largest = 0;
  for (const proto::Function& function : program.functions()) {
    if (function.name() != "load" && function.name() != "save") {
      find_largest(program, function.steps(), direction, largest);
    }
  }
  return ceil_div(largest, std::int64_t{8}) * 8;
}

TEST(IoTiles, HoldBuffersAndTheirCodeAndNothingElseDoes) {
  const Program program = compiled(small_job(8));
  EXPECT_EQ(program.device().tiles(), 32);
  EXPECT_EQ(program.memory(0).capacity(), 32 << 20);
  const proto::TileLayout& layout = program.memory(0).layout();
  std::vector<std::int64_t> buffers;
  for (int i = 0; i < layout.claims_size(); ++i) {
    const std::string& category = layout.claims(i).category();
    std::int64_t on_io_tiles = 0;
    std::int64_t elsewhere = 0;
    for (const proto::TileClass& one : layout.classes()) {
      for (const std::uint32_t tile : one.tiles()) {
        (tile >= 24 ? on_io_tiles : elsewhere) += static_cast<std::int64_t>(one.bytes(i));
      }
    }
    const bool is_host = category == to_text(Category::kHostBuffer);
    EXPECT_TRUE(on_io_tiles == 0 || elsewhere == 0) << category;
    EXPECT_TRUE(elsewhere == 0 || !is_host) << category;
    EXPECT_TRUE(on_io_tiles == 0 || is_host || category == to_text(Category::kExchangeCode) ||
                category == to_text(Category::kControlCode))
        << category;
    if (is_host) {
      buffers.push_back(on_io_tiles);
    }
  }
  ASSERT_EQ(buffers.size(), 3);
  EXPECT_EQ(buffers[0], largest_transfer(program, proto::TRANSFER_IN));
  EXPECT_GE(buffers[1], largest_transfer(program, proto::TRANSFER_OUT));
  EXPECT_LT(buffers[2], buffers[0]) << "exchange code";
}

TEST(IoTiles, ChangeNoBitAndAreUsedUpToTheirPlannedPeaks) {
  const Outcome plain = run_program(small_job(0), compiled(small_job(0)));
  const Outcome io = run_program(small_job(8), compiled(small_job(8)));
  ASSERT_FALSE(plain.records[0].tensors.empty());
  EXPECT_EQ(io.records[0].tensors, plain.records[0].tensors);
  ASSERT_EQ(io.records[0].steps.size(), plain.records[0].steps.size());
  for (std::size_t i = 0; i < io.records[0].steps.size(); ++i) {
    EXPECT_EQ(io.records[0].steps[i].loss, plain.records[0].steps[i].loss);
  }
  const std::vector<Bytes>& marks = io.results[0].tile_high_water.at(0);
  ASSERT_EQ(marks.size(), 32);
  for (const proto::TileClass& one : io.program.memory(0).layout().classes()) {
    for (const std::uint32_t tile : one.tiles()) {
      EXPECT_EQ(static_cast<std::uint64_t>(marks[tile].count()), one.peak()) << "tile " << tile;
    }
  }
}

TEST(IoTiles, AreOutOfMemoryWhereTheirBuffersDoNotFit) {
  proto::RunConfig job = with_io_tiles(small_job(0), 2);
  job.mutable_memory()->clear_tiles();
  const auto refused = compile(*compile_options(job, dataset()));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().message, HasSubstr("on tile 30 of IPU 0"));
  EXPECT_THAT(refused.error().message, HasSubstr("mostly host exchange"));
}

CallTime train_time(const Program& program, const StretchVisitor& visit = nullptr) {
  return walk(program, *find_function(program, "train"), visit);
}

TEST(IoTiles, HideTheInputsOfAllMicroBatchesButTheFirst) {
  proto::RunConfig job = config(1, 64);
  job.mutable_training()->set_gradient_accumulation(16);
  job.mutable_training()->set_evaluate(false);
  const CallTime plain = train_time(compiled(job));
  const CallTime io = train_time(compiled(with_io_tiles(job, 32)));
  EXPECT_LT(io.length, plain.length);
  EXPECT_LT(8 * io.busy[0].host_cycles(), plain.busy[0].host_cycles()) << "16 inputs, 15 hidden";
  EXPECT_GE(io.busy[0].io_cycles(), plain.busy[0].host_cycles());
}

/// Returns a job with off-chip weights, four phases on one IPU, and enough micro-batches to hide a load.
proto::RunConfig phased_job() {
  proto::RunConfig job = config(1, 16);
  job.mutable_training()->set_gradient_accumulation(64);
  job.mutable_training()->set_evaluate(false);
  job.mutable_memory()->set_phases(4);
  job.mutable_memory()->set_phase_ipus(1);
  job.mutable_memory()->set_in_place(true);
  job.mutable_memory()->set_weights("off-chip");
  return job;
}

/// Returns the cycles of a lane's transfers between Streaming Memory and the IPU, by step.
std::map<std::uint32_t, Cycles> streaming(const Program& program, Lane lane) {
  std::map<std::uint32_t, Cycles> by_step;
  train_time(program, [&](const Stretch& bar) {
    if (bar.lane == lane && bar.doing == Doing::kStreaming) {
      by_step[bar.step.number()] += bar.length * static_cast<std::int64_t>(bar.count);
    }
  });
  return by_step;
}

Cycles sum(const std::map<std::uint32_t, Cycles>& by_step) {
  Cycles sum;
  for (const auto& [step, cycles] : by_step) {
    sum += cycles;
  }
  return sum;
}

TEST(IoTiles, LoadTheWeightsOfAPhaseWhileTheOneBeforeComputes) {
  const Program plain = compiled(phased_job());
  const Program io = compiled(with_io_tiles(phased_job(), 32));
  const auto transfers = streaming(io, Lane::kIo);
  const auto waits = streaming(io, Lane::kTiles);
  EXPECT_GE(sum(transfers), sum(streaming(plain, Lane::kTiles)));
  EXPECT_LT(sum(waits), sum(streaming(plain, Lane::kTiles)));
  EXPECT_LT(train_time(io).length, train_time(plain).length);
  // The longest transfer loads fc1's weight for the forward pass. Nothing else is loaded during the preceding phase.
  const auto longest = std::ranges::max_element(transfers, {}, [](const auto& t) { return t.second; });
  EXPECT_GT(longest->second * 5, sum(transfers));
  EXPECT_FALSE(waits.contains(longest->first));
}

TEST(IoTiles, LeaveFewerTilesToCompute) {
  const auto on_tiles = [](std::uint32_t tiles, std::uint32_t io_tiles) {
    proto::RunConfig job = with_io_tiles(config(1, 16), io_tiles);
    job.mutable_device()->set_tiles(tiles);
    job.mutable_device()->set_bytes_per_tile(1 << 20);
    job.mutable_training()->set_gradient_accumulation(2);
    return train_time(compiled(job)).busy[0].compute_cycles();
  };
  EXPECT_EQ(on_tiles(128, 64), on_tiles(64, 0));
  EXPECT_GT(on_tiles(128, 64), on_tiles(128, 0));
}

TEST(IoTiles, AreAnEvenNumberThatLeavesTilesToCompute) {
  const proto::RunConfig job = config(1, 4);
  EXPECT_EQ(refusal(with_io_tiles(job, 128)), "");
  for (const std::uint32_t wrong : {2U, 30U, 33U, 194U}) {
    EXPECT_EQ(refusal(with_io_tiles(job, wrong)),
              "device.io-tiles = " + std::to_string(wrong) + ": use an even number from 32 to 192, or 0");
  }
  proto::RunConfig small = job;
  small.mutable_device()->set_tiles(16);
  EXPECT_EQ(refusal(with_io_tiles(small, 14)), "");
  EXPECT_EQ(refusal(with_io_tiles(small, 16)),
            "device.io-tiles = 16: none of the 16 tiles (device.tiles) would compute; use fewer I/O tiles");
}

}  // namespace
}  // namespace poprun::io_tiles_test
