#pragma once

#include <cstdint>
#include <string>

#include "proto/profile.pb.h"
#include "replica/base/error.h"

/// trace.pftrace: the device's timeline of one step, for Perfetto (ui.perfetto.dev).
///
///   process "replica on the device clock"
///     track "IPU 0"           | conv2d 'conv1'                 | relu 'relu1' ..
///                             | sync | exchange | compute      | sync ..
///     track "IPU 0, links"    all-reduces in the background
///     track "IPU 0, I/O"      transfers by I/O tiles
///
/// Times are those of the device clock, which is a clock of its own in the trace; it begins with the trace. Every slice
/// of an activity carries its exact number of cycles, because nanoseconds are rounded.
namespace poprun::launcher {

struct DeviceTrace {
  std::string bytes;
  std::uint64_t left_out = 0;  ///< Slices beyond the limit of 600,000: the last of equal rounds.
};

/// Returns the trace of a profile with a report. Deterministic. Cost: linear in the bars of the timeline.
DeviceTrace device_trace(const proto::Profile& profile);

/// Writes trace.pftrace, memory.pickle and memory-tiles.pickle of a profile with a report to `folder`. Returns the
/// number of slices left out of the trace. Errors: those of write_whole_file.
Result<std::uint64_t> write_traces(const std::string& folder, const proto::Profile& profile);

}  // namespace poprun::launcher
