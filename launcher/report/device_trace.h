#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "proto/report.pb.h"

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

struct StepName {
  std::string function;
  std::string text;  ///< "conv2d 'conv1'".
};

/// Returns the names of all steps, by number.
std::map<std::uint32_t, StepName> step_names(const proto::Report& report);

struct DeviceTrace {
  std::string bytes;
  /// Number of slices left out: the last of equal rounds, beyond `slices_max`, and bars that the timeline itself lacks.
  std::uint64_t left_out = 0;
};

/// The default limit keeps a trace below 50 MB.
inline constexpr std::uint64_t kTraceSlicesMax = 450'000;

/// Returns the trace of a report with a timeline. Its tracks have uuids below 1,024. Deterministic. Cost: linear in the
/// slices.
DeviceTrace device_trace(const proto::Report& report, std::uint64_t slices_max = kTraceSlicesMax);

}  // namespace poprun::launcher
