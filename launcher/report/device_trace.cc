#include "launcher/report/device_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <ranges>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "proto/perfetto.pb.h"

namespace poprun::launcher {
namespace {

using proto::perfetto::TracePacket;
using proto::perfetto::TrackEvent;

constexpr std::uint32_t kSequence = 1;
constexpr std::uint32_t kDeviceClock = 64;
constexpr std::uint32_t kBootClock = 6;  // Perfetto's BUILTIN_CLOCK_BOOTTIME.
constexpr std::uint64_t kProcess = 1;
constexpr std::array<std::string_view, 6> kDoing = {"sync", "exchange", "compute", "links", "host", "Streaming Memory"};
constexpr std::array<std::string_view, 3> kLane = {"", ", links", ", I/O"};

/// A bar of the timeline, unrolled.
struct Slice {
  std::uint64_t track = 0;
  std::uint64_t begin = 0;  ///< In cycles.
  std::uint64_t end = 0;
  std::uint32_t step = 0;
  std::uint32_t micro_batch = 0;
  int doing = 0;
};

std::uint64_t track_of(std::uint32_t ipu, int lane) {
  return kProcess + 1 + ipu * kLane.size() + static_cast<std::uint64_t>(lane);
}

/// Returns how many of the equal rounds that a bar stands for are drawn, so that the trace stays within its limit.
std::uint32_t rounds_drawn(const proto::Timeline& timeline, std::uint64_t slices_max) {
  const auto fits = [&](std::uint32_t rounds) {
    return std::accumulate(timeline.count().begin(), timeline.count().end(), std::uint64_t{0},
                           [rounds](std::uint64_t sum, std::uint32_t count) {
                             return sum + std::min(count, rounds);
                           }) <= slices_max;
  };
  const auto more = std::views::iota(std::uint32_t{2}, std::uint32_t{1} << 31);
  return 1 + static_cast<std::uint32_t>(std::ranges::partition_point(more, fits) - more.begin());
}

/// Returns the bars of the timeline one by one, of equal rounds the first `drawn`, by track and time.
std::vector<Slice> slices_of(const proto::Timeline& timeline, std::uint32_t drawn) {
  std::vector<Slice> slices;
  for (int k = 0; k < timeline.step_size(); ++k) {
    for (std::uint32_t round = 0; round < std::min(timeline.count(k), drawn); ++round) {
      const std::uint64_t begin = timeline.begin(k) + round * timeline.distance(k);
      slices.push_back({track_of(timeline.ipu(k), timeline.lane(k)), begin, begin + timeline.length(k),
                        timeline.step(k), timeline.micro_batch(k) + round, timeline.doing(k)});
    }
  }
  std::ranges::stable_sort(slices, {}, [](const Slice& slice) { return std::pair{slice.track, slice.begin}; });
  return slices;
}

class Writer {
 public:
  explicit Writer(const proto::Profile& profile)
      : timeline_(profile.report().timeline()),
        ns_per_cycle_(1e9 / timeline_.clock_hz()),
        names_(step_names(profile.report())) {}

  DeviceTrace trace(std::uint64_t slices_max) {
    const std::vector<Slice> slices = slices_of(timeline_, rounds_drawn(timeline_, slices_max));
    DeviceTrace result;
    result.left_out =
        std::accumulate(timeline_.count().begin(), timeline_.count().end(), timeline_.left_out()) - slices.size();
    begin(slices);
    for (std::size_t k = 0; k < slices.size();) {
      std::size_t end = k + 1;
      while (end < slices.size() && belong_together(slices[end - 1], slices[end])) {
        ++end;
      }
      operation({slices.begin() + static_cast<std::ptrdiff_t>(k), slices.begin() + static_cast<std::ptrdiff_t>(end)});
      k = end;
    }
    result.bytes = std::move(bytes_);
    return result;
  }

 private:
  /// Returns whether two slices that follow each other on a track are activities of the same execution of a step.
  static bool belong_together(const Slice& one, const Slice& next) {
    return one.track == next.track && one.step == next.step && one.micro_batch == next.micro_batch &&
           one.end == next.begin && one.doing != next.doing;
  }

  /// Writes the clocks, the names and the tracks.
  void begin(const std::vector<Slice>& slices) {
    TracePacket packet;
    packet.set_sequence_flags(TracePacket::SEQ_INCREMENTAL_STATE_CLEARED);
    for (const std::uint32_t clock : {kDeviceClock, kBootClock}) {
      auto& reading = *packet.mutable_clock_snapshot()->add_clocks();
      reading.set_clock_id(clock);
      reading.set_timestamp(0);
    }
    packet.mutable_clock_snapshot()->set_primary_trace_clock(kBootClock);
    add(packet);
    TracePacket interned;
    auto& data = *interned.mutable_interned_data();
    for (std::size_t k = 0; k < kDoing.size(); ++k) {
      intern(*data.add_event_categories(), k + 1, kDoing[k]);
      intern(*data.add_event_names(), k + 1, kDoing[k]);
    }
    for (const auto& [step, name] : names_) {
      intern(*data.add_event_names(), name_of(step), name.text);
    }
    intern(*data.add_debug_annotation_names(), kCycles, "cycles");
    intern(*data.add_debug_annotation_names(), kMicroBatch, "micro-batch");
    interned.set_sequence_flags(TracePacket::SEQ_NEEDS_INCREMENTAL_STATE);
    add(interned);
    tracks(slices);
  }

  void tracks(const std::vector<Slice>& slices) {
    TracePacket process;
    process.mutable_track_descriptor()->set_uuid(kProcess);
    process.mutable_track_descriptor()->mutable_process()->set_pid(1);
    process.mutable_track_descriptor()->mutable_process()->set_process_name("replica on the device clock");
    add(process);
    std::uint64_t last = 0;
    for (const Slice& slice : slices) {
      if (slice.track == std::exchange(last, slice.track)) {
        continue;
      }
      const std::uint64_t index = slice.track - kProcess - 1;
      TracePacket packet;
      packet.mutable_track_descriptor()->set_uuid(slice.track);
      packet.mutable_track_descriptor()->set_parent_uuid(kProcess);
      packet.mutable_track_descriptor()->set_name(
          fmt::format("IPU {}{}", index / kLane.size(), kLane.at(index % kLane.size())));
      add(packet);
    }
  }

  /// Writes one execution of a step on a track, with its activities inside.
  void operation(std::span<const Slice> parts) {
    TrackEvent& outer = event(TrackEvent::TYPE_SLICE_BEGIN, parts.front(), parts.front().begin);
    outer.set_name_iid(name_of(parts.front().step));
    annotate(outer, kMicroBatch, parts.front().micro_batch);
    add(packet_);
    for (const Slice& part : parts) {
      const auto iid = static_cast<std::uint64_t>(part.doing) + 1;
      TrackEvent& inner = event(TrackEvent::TYPE_SLICE_BEGIN, part, part.begin);
      inner.set_name_iid(iid);
      inner.add_category_iids(iid);
      annotate(inner, kCycles, part.end - part.begin);
      add(packet_);
      event(TrackEvent::TYPE_SLICE_END, part, part.end);
      add(packet_);
    }
    event(TrackEvent::TYPE_SLICE_END, parts.back(), parts.back().end);
    add(packet_);
  }

  TrackEvent& event(TrackEvent::Type type, const Slice& slice, std::uint64_t cycles) {
    packet_.Clear();
    packet_.set_timestamp(static_cast<std::uint64_t>(std::llround(static_cast<double>(cycles) * ns_per_cycle_)));
    packet_.set_timestamp_clock_id(kDeviceClock);
    packet_.set_sequence_flags(TracePacket::SEQ_NEEDS_INCREMENTAL_STATE);
    TrackEvent& event = *packet_.mutable_track_event();
    event.set_type(type);
    event.set_track_uuid(slice.track);
    return event;
  }

  static void annotate(TrackEvent& event, std::uint64_t name, std::uint64_t value) {
    auto& annotation = *event.add_debug_annotations();
    annotation.set_name_iid(name);
    annotation.set_uint_value(value);
  }

  template <typename Interned>
  static void intern(Interned& interned, std::uint64_t iid, std::string_view name) {
    interned.set_iid(iid);
    interned.set_name(std::string(name));
  }

  static std::uint64_t name_of(std::uint32_t step) { return kDoing.size() + 1 + step; }

  /// Appends a packet as an element of Trace.packet, so that a trace never exists as one message in memory.
  void add(TracePacket& packet) {
    packet.set_trusted_packet_sequence_id(kSequence);
    proto::perfetto::Trace trace;
    trace.add_packet()->Swap(&packet);
    trace.AppendToString(&bytes_);
    packet.Swap(trace.mutable_packet(0));
  }

  static constexpr std::uint64_t kCycles = 1;
  static constexpr std::uint64_t kMicroBatch = 2;

  const proto::Timeline& timeline_;
  double ns_per_cycle_;
  std::map<std::uint32_t, StepName> names_;
  TracePacket packet_;  ///< Reused.
  std::string bytes_;
};

using Nodes = google::protobuf::RepeatedPtrField<proto::TreeNode>;

void add_names(const std::string& function, const Nodes& nodes, std::map<std::uint32_t, StepName>& names) {
  for (const proto::TreeNode& node : nodes) {
    names[node.step()] = {function, node.text()};
    add_names(function, node.nodes(), names);
  }
}

}  // namespace

std::map<std::uint32_t, StepName> step_names(const proto::Report& report) {
  std::map<std::uint32_t, StepName> names;
  for (const proto::FunctionTree& function : report.functions()) {
    add_names(function.name(), function.nodes(), names);
  }
  return names;
}

DeviceTrace device_trace(const proto::Profile& profile, std::uint64_t slices_max) {
  return Writer(profile).trace(slices_max);
}

}  // namespace poprun::launcher
