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
  std::uint64_t left_out = 0;  ///< Slices beyond `slices_max`: the last of equal rounds.
};

/// The default limit keeps a trace below 50 MB.
inline constexpr std::uint64_t kTraceSlicesMax = 450'000;

/// Returns the trace of a profile with a report. Deterministic. Cost: linear in the slices.
DeviceTrace device_trace(const proto::Profile& profile, std::uint64_t slices_max = kTraceSlicesMax);

/// Writes trace.pftrace, memory.pickle and memory-tiles.pickle of a profile with a report to `folder`. Returns the
/// number of slices left out of the trace. Errors: those of write_whole_file.
Result<std::uint64_t> write_traces(const std::string& folder, const proto::Profile& profile);

}  // namespace poprun::launcher
