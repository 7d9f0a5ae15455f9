#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "proto/perfetto.pb.h"

namespace poprun::testing {

struct ReadSlice {
  std::string track;  ///< "replica 0, host a/collectives"; without a process's name for the device clock.
  std::string name;
  std::uint64_t begin = 0;  ///< In ns.
  std::uint64_t end = 0;
  std::uint64_t flow = 0;
};

struct ReadTrace {
  std::map<std::uint64_t, std::string> tracks;
  std::map<std::string, std::uint64_t> cycles;  ///< By track and activity: "IPU 0 compute".
  std::vector<std::string> begun;               ///< Names of slices, in order.
  std::vector<ReadSlice> slices;                ///< In the order of their beginnings in the file.
};

/// Reads a trace, and checks that it is monotone on each track, that slices end inside of those that contain them, and
/// that every slice ends.
inline ReadTrace read_trace(const std::string& bytes) {
  using proto::perfetto::TrackEvent;
  proto::perfetto::Trace trace;
  EXPECT_TRUE(trace.ParseFromString(bytes));
  ReadTrace result;
  std::map<std::uint32_t, std::map<std::uint64_t, std::string>> names;  // By sequence.
  std::map<std::uint32_t, std::map<std::uint64_t, std::string>> annotations;
  std::map<std::uint64_t, std::vector<std::size_t>> open;  // By track: slices.
  std::map<std::uint64_t, std::uint64_t> now;
  for (const auto& packet : trace.packet()) {
    const std::uint32_t sequence = packet.trusted_packet_sequence_id();
    for (const auto& name : packet.interned_data().event_names()) {
      names[sequence][name.iid()] = name.name();
    }
    for (const auto& name : packet.interned_data().debug_annotation_names()) {
      annotations[sequence][name.iid()] = name.name();
    }
    if (packet.has_track_descriptor()) {
      const auto& track = packet.track_descriptor();
      const std::string process = sequence == 1 || track.has_process() ? "" : result.tracks[track.parent_uuid()] + "/";
      EXPECT_FALSE(result.tracks.contains(track.uuid())) << "two tracks have the same uuid";
      result.tracks[track.uuid()] = track.has_process() ? track.process().process_name() : process + track.name();
    }
    if (!packet.has_track_event()) {
      continue;
    }
    const TrackEvent& event = packet.track_event();
    EXPECT_GE(packet.timestamp(), now[event.track_uuid()]);
    now[event.track_uuid()] = packet.timestamp();
    if (event.type() == TrackEvent::TYPE_SLICE_BEGIN) {
      open[event.track_uuid()].push_back(result.slices.size());
      result.begun.push_back(names[sequence].at(event.name_iid()));
      result.slices.push_back({result.tracks.at(event.track_uuid()), result.begun.back(), packet.timestamp(), 0,
                               event.flow_ids_size() > 0 ? event.flow_ids(0) : 0});
      for (const auto& annotation : event.debug_annotations()) {
        if (annotations[sequence].at(annotation.name_iid()) == "cycles") {
          result.cycles[result.tracks.at(event.track_uuid()) + " " + result.begun.back()] += annotation.uint_value();
        }
      }
    } else if (open[event.track_uuid()].empty()) {
      ADD_FAILURE() << "a slice ends that has not begun";
    } else {
      result.slices[open[event.track_uuid()].back()].end = packet.timestamp();
      open[event.track_uuid()].pop_back();
    }
  }
  for (const auto& [track, slices] : open) {
    EXPECT_TRUE(slices.empty()) << "a slice of track " << track << " does not end";
  }
  return result;
}

}  // namespace poprun::testing
