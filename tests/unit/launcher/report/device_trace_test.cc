#include "launcher/report/device_trace.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/launcher/report/trace_reader.h"

namespace poprun::launcher {
namespace {

using poprun::testing::read_trace;
using poprun::testing::ReadTrace;

/// A job with two IPUs at 1 GHz:
///
///   IPU 0  sync 10 | compute 90 (conv)   then twice: compute 50 (relu), every 60 cycles
///   IPU 1            link 40 (conv), in the background
proto::Report report(std::uint32_t rounds) {
  proto::Report report;
  auto& function = *report.add_functions();
  function.set_name("train");
  auto& conv = *function.add_nodes();
  conv.set_step(3);
  conv.set_text("conv2d 'conv1'");
  auto& repeat = *function.add_nodes();
  repeat.set_step(4);
  repeat.set_text("Repeat(count: 2)");
  repeat.add_nodes()->set_step(5);
  repeat.mutable_nodes(0)->set_text("relu 'relu1'");
  proto::Timeline& timeline = *report.mutable_timeline();
  timeline.set_clock_hz(1e9);
  const auto bar = [&](std::uint32_t step, std::uint32_t ipu, proto::Lane lane, proto::Doing doing, std::uint64_t begin,
                       std::uint64_t length, std::uint32_t count, std::uint64_t distance) {
    timeline.add_step(step);
    timeline.add_ipu(ipu);
    timeline.add_lane(lane);
    timeline.add_doing(doing);
    timeline.add_begin(begin);
    timeline.add_length(length);
    timeline.add_micro_batch(0);
    timeline.add_count(count);
    timeline.add_distance(distance);
  };
  bar(3, 0, proto::LANE_TILES, proto::DOING_SYNC, 0, 10, 1, 0);
  bar(3, 0, proto::LANE_TILES, proto::DOING_COMPUTE, 10, 90, 1, 0);
  bar(3, 1, proto::LANE_LINKS, proto::DOING_LINK, 5, 40, 1, 0);
  bar(5, 0, proto::LANE_TILES, proto::DOING_COMPUTE, 100, 50, rounds, 60);
  return report;
}

TEST(DeviceTrace, ShowsEveryActivityOfEveryIpuWithItsExactCycles) {
  const DeviceTrace trace = device_trace(report(2));

  const ReadTrace read_back = read_trace(trace.bytes);

  EXPECT_EQ(trace.left_out, 0);
  EXPECT_EQ(read_back.cycles, (std::map<std::string, std::uint64_t>{
                                  {"IPU 0 sync", 10}, {"IPU 0 compute", 90 + 2 * 50}, {"IPU 1, links links", 40}}));
  EXPECT_EQ(read_back.begun, (std::vector<std::string>{"conv2d 'conv1'", "sync", "compute", "relu 'relu1'", "compute",
                                                       "relu 'relu1'", "compute", "conv2d 'conv1'", "links"}));
}

TEST(DeviceTrace, LeavesOutTheLastOfManyEqualRoundsAndCountsThem) {
  const DeviceTrace trace = device_trace(report(5'000'000), 1003);

  EXPECT_EQ(trace.left_out, 5'000'000 - 1000);
  EXPECT_EQ(read_trace(trace.bytes).cycles.at("IPU 0 compute"), 90 + 50 * 1000);
}

}  // namespace
}  // namespace poprun::launcher
