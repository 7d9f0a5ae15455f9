#include "launcher/report/device_trace.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "proto/perfetto.pb.h"

namespace poprun::launcher {
namespace {

using proto::perfetto::Trace;
using proto::perfetto::TracePacket;
using proto::perfetto::TrackEvent;

/// A job with two IPUs at 1 GHz:
///
///   IPU 0  sync 10 | compute 90 (conv)   then twice: compute 50 (relu), every 60 cycles
///   IPU 1            link 40 (conv), in the background
proto::Profile profile(std::uint32_t rounds) {
  proto::Profile profile;
  proto::Report& report = *profile.mutable_report();
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
  return profile;
}

struct Read {
  std::map<std::uint64_t, std::string> tracks;
  std::map<std::string, std::uint64_t> cycles;  ///< By track and activity: "IPU 0 compute".
  std::vector<std::string> begun;               ///< Names of slices, in order.
};

/// Reads a trace, and checks that it is monotone on each track and that every slice ends.
Read read_trace(const std::string& bytes) {
  Trace trace;
  EXPECT_TRUE(trace.ParseFromString(bytes));
  Read result;
  std::map<std::uint64_t, std::string> names;
  std::map<std::uint64_t, std::vector<std::uint64_t>> open;  // By track: begins of slices.
  std::map<std::uint64_t, std::uint64_t> now;
  for (const TracePacket& packet : trace.packet()) {
    for (const auto& name : packet.interned_data().event_names()) {
      names[name.iid()] = name.name();
    }
    if (packet.has_track_descriptor()) {
      result.tracks[packet.track_descriptor().uuid()] = packet.track_descriptor().name();
    }
    if (!packet.has_track_event()) {
      continue;
    }
    const TrackEvent& event = packet.track_event();
    EXPECT_GE(packet.timestamp(), now[event.track_uuid()]);
    now[event.track_uuid()] = packet.timestamp();
    if (event.type() == TrackEvent::TYPE_SLICE_BEGIN) {
      open[event.track_uuid()].push_back(packet.timestamp());
      result.begun.push_back(names.at(event.name_iid()));
      if (event.category_iids_size() > 0) {
        result.cycles[result.tracks.at(event.track_uuid()) + " " + names.at(event.name_iid())] +=
            event.debug_annotations(0).uint_value();
      }
    } else {
      EXPECT_FALSE(open[event.track_uuid()].empty()) << "a slice ends that has not begun";
      open[event.track_uuid()].pop_back();
    }
  }
  for (const auto& [track, begins] : open) {
    EXPECT_TRUE(begins.empty()) << "a slice of track " << track << " does not end";
  }
  return result;
}

TEST(DeviceTrace, ShowsEveryActivityOfEveryIpuWithItsExactCycles) {
  const DeviceTrace trace = device_trace(profile(2));

  const Read read_back = read_trace(trace.bytes);

  EXPECT_EQ(trace.left_out, 0);
  EXPECT_EQ(read_back.cycles, (std::map<std::string, std::uint64_t>{
                                  {"IPU 0 sync", 10}, {"IPU 0 compute", 90 + 2 * 50}, {"IPU 1, links links", 40}}));
  EXPECT_EQ(read_back.begun, (std::vector<std::string>{"conv2d 'conv1'", "sync", "compute", "relu 'relu1'", "compute",
                                                       "relu 'relu1'", "compute", "conv2d 'conv1'", "links"}));
}

TEST(DeviceTrace, LeavesOutTheLastOfManyEqualRoundsAndCountsThem) {
  const DeviceTrace trace = device_trace(profile(5'000'000), 1003);

  EXPECT_EQ(trace.left_out, 5'000'000 - 1000);
  EXPECT_EQ(read_trace(trace.bytes).cycles.at("IPU 0 compute"), 90 + 50 * 1000);
}

}  // namespace
}  // namespace poprun::launcher
