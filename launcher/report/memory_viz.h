#pragma once

#include <cstdint>
#include <string>

#include "proto/report.pb.h"

/// Snapshots of memory in the format of torch.cuda.memory._snapshot(), which PyTorch's memory_viz
/// (pytorch.org/memory_viz) draws: the memory over time, and what is allocated at the fullest step.
namespace poprun::launcher {

/// The meaning of a device in the snapshot: an IPU, with the bytes of all its tiles together, or its fullest tile,
/// with the addresses that the plan gave to its contents.
enum class SnapshotOf : std::uint8_t { kIpus, kFullestTiles };

/// Returns a pickle (protocol 2) of {"segments": [...], "device_traces": [...]}. Device k belongs to IPU k. The time of
/// an event is the number of its step, in microseconds; the frame of an allocation names the variable, its category and
/// the function and operation at which its life begins. The allocations of a device at a step sum to the live bytes of
/// the report; an IPU's addresses are only unique. Deterministic.
std::string memory_snapshot(const proto::Report& report, SnapshotOf what);

}  // namespace poprun::launcher
