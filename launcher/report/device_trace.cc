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

#include "launcher/report/perfetto_writer.h"

namespace poprun::launcher {
namespace {

constexpr std::uint32_t kSequence = 1;
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

/// Returns the bars of the timeline, sorted by track and time, with only the first `drawn` of equal rounds.
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
  explicit Writer(const proto::Report& report)
      : timeline_(report.timeline()), ns_per_cycle_(1e9 / timeline_.clock_hz()), names_(step_names(report)) {}

  DeviceTrace trace(std::uint64_t slices_max) {
    const std::vector<Slice> slices = slices_of(timeline_, rounds_drawn(timeline_, slices_max));
    DeviceTrace result;
    result.left_out =
        std::accumulate(timeline_.count().begin(), timeline_.count().end(), timeline_.left_out()) - slices.size();
    add_tracks(slices);
    for (std::size_t k = 0; k < slices.size();) {
      std::size_t end = k + 1;
      while (end < slices.size() && belong_together(slices[end - 1], slices[end])) {
        ++end;
      }
      operation({slices.begin() + static_cast<std::ptrdiff_t>(k), slices.begin() + static_cast<std::ptrdiff_t>(end)});
      k = end;
    }
    result.bytes = writer_.take();
    return result;
  }

 private:
  /// Returns whether two slices that follow each other on a track are activities of the same execution of a step.
  static bool belong_together(const Slice& one, const Slice& next) {
    return one.track == next.track && one.step == next.step && one.micro_batch == next.micro_batch &&
           one.end == next.begin && one.doing != next.doing;
  }

  void add_tracks(const std::vector<Slice>& slices) {
    writer_.add_process(kProcess, 1, "replica on the device clock");
    std::uint64_t last = 0;
    for (const Slice& slice : slices) {
      if (slice.track != std::exchange(last, slice.track)) {
        const std::uint64_t index = slice.track - kProcess - 1;
        writer_.add_track(slice.track, kProcess,
                          fmt::format("IPU {}{}", index / kLane.size(), kLane.at(index % kLane.size())));
      }
    }
  }

  /// Writes one execution of a step on a track, with its activities inside.
  void operation(std::span<const Slice> parts) {
    writer_.begin({.track = parts.front().track,
                   .name = writer_.name(names_[parts.front().step].text),
                   .annotation = {micro_batch_, parts.front().micro_batch}},
                  ns(parts.front().begin));
    for (const Slice& part : parts) {
      const std::string_view doing = kDoing.at(static_cast<std::size_t>(part.doing));
      writer_.begin({.track = part.track,
                     .name = writer_.name(doing),
                     .category = writer_.category(doing),
                     .annotation = {cycles_, part.end - part.begin}},
                    ns(part.begin));
      writer_.end(part.track, ns(part.end));
    }
    writer_.end(parts.back().track, ns(parts.back().end));
  }

  [[nodiscard]] std::uint64_t ns(std::uint64_t cycles) const {
    return static_cast<std::uint64_t>(std::llround(static_cast<double>(cycles) * ns_per_cycle_));
  }

  const proto::Timeline& timeline_;
  double ns_per_cycle_;
  std::map<std::uint32_t, StepName> names_;
  PerfettoWriter writer_{kSequence, PerfettoWriter::kDeviceClock};
  std::uint64_t cycles_ = writer_.annotation("cycles");
  std::uint64_t micro_batch_ = writer_.annotation("micro-batch");
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

DeviceTrace device_trace(const proto::Report& report, std::uint64_t slices_max) {
  return Writer(report).trace(slices_max);
}

}  // namespace poprun::launcher
