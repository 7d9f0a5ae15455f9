#include "launcher/report/run_trace.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "launcher/report/device_trace.h"
#include "launcher/report/perfetto_writer.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr std::uint32_t kRunSequence = 2;     // device_trace uses 1.
constexpr std::uint64_t kFirstTrack = 1'024;  // Tracks of device_trace are below.
constexpr std::uint64_t kDeviceSlicesMax = 100'000;
constexpr std::uint64_t kSlicesMax = 1'000'000;  // Replicas of a job send fewer.

/// The tracks of a replica, after its process.
enum Track : std::uint8_t { kSteps = 1, kOperators, kCopies, kCollectives, kHostStreams, kTracks };
constexpr std::array<std::string_view, kTracks> kTrackNames = {"",       "steps",       "operators",
                                                               "copies", "collectives", "host streams"};

struct Look {
  Track track;
  std::string_view name;  ///< Empty: the name of the Program's step.
};

/// By TraceKind.
constexpr std::array<Look, proto::TraceKind_ARRAYSIZE> kLooks = {{{kSteps, "step"},
                                                                  {kSteps, ""},
                                                                  {kOperators, ""},
                                                                  {kOperators, "operators"},
                                                                  {kCopies, ""},
                                                                  {kCollectives, ""},
                                                                  {kCollectives, ""},
                                                                  {kCollectives, ""},
                                                                  {kHostStreams, ""},
                                                                  {kSteps, "evaluation"},
                                                                  {kSteps, "checkpoint"},
                                                                  {kCollectives, "sharing on the host"}}};

const Look& look_of(proto::TraceKind kind) {
  return kLooks.at(static_cast<std::size_t>(kind));
}

/// A collective of one group of replicas: training step, Step.number, how often it had run in that step, first replica.
using Meeting = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t, std::uint32_t>;

/// Calls `visit` with the index and the meeting of each collective in a trace.
template <typename Visit>
void visit_meetings(const proto::StepTrace& trace, Visit visit) {
  std::map<std::uint32_t, std::uint32_t> ran;
  for (int k = 0; k < trace.kind_size(); ++k) {
    if (trace.group(k) > 0) {
      const std::uint32_t first = trace.replica() / trace.group(k) * trace.group(k);
      visit(k, Meeting{trace.step(), trace.number(k), ran[trace.number(k)]++, first});
    }
  }
}

/// The replicas of one host in a meeting, by the host's clock.
struct HostVisit {
  std::int64_t last_entered = std::numeric_limits<std::int64_t>::min();
  std::int64_t first_left = std::numeric_limits<std::int64_t>::max();
};

using Visits = std::map<Meeting, std::map<std::uint32_t, HostVisit>>;  // By meeting and host.

Visits visits_of(std::span<const proto::StepTrace> traces, std::span<const std::uint32_t> host_of) {
  Visits visits;
  for (const proto::StepTrace& trace : traces) {
    visit_meetings(trace, [&](int k, const Meeting& meeting) {
      if (trace.kind(k) == proto::TRACE_COLLECTIVE) {
        HostVisit& visit = visits[meeting][host_of[trace.replica()]];
        const auto entered = static_cast<std::int64_t>(trace.began_ns() + trace.begin_ns(k));
        visit.last_entered = std::max(visit.last_entered, entered);
        visit.first_left = std::min(visit.first_left, entered + static_cast<std::int64_t>(trace.length_ns(k)));
      }
    });
  }
  return visits;
}

constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

/// The most by which the offset of host b may exceed that of host a, for pairs (a, b).
using Bounds = std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t>;

/// Returns when the first traced step of a host began, by its own clock, or 0 if it traced no step.
std::int64_t first_began(std::span<const proto::StepTrace> traces, std::span<const std::uint32_t> host_of,
                         std::size_t host) {
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  for (const proto::StepTrace& trace : traces) {
    if (host_of[trace.replica()] == host) {
      first = std::min(first, trace.began_ns());
    }
  }
  return first == std::numeric_limits<std::uint64_t>::max() ? 0 : static_cast<std::int64_t>(first);
}

/// Returns the length of the shortest path from host 0 to each host, with the bounds as edge lengths.
std::vector<std::int64_t> shortest_paths(const Bounds& bounds, std::size_t hosts) {
  std::vector<std::int64_t> sums(hosts, kUnbounded);
  sums[0] = 0;
  for (std::size_t round = 0; round < hosts; ++round) {
    bool changed = false;
    for (const auto& [pair, bound] : bounds) {
      const auto& [from, to] = pair;
      if (sums[from] != kUnbounded && sums[from] + bound < sums[to]) {
        sums[to] = sums[from] + bound;
        changed = true;
      }
    }
    if (!changed) {
      break;
    }
  }
  return sums;
}

}  // namespace

std::vector<ClockOffset> clock_offsets(std::span<const proto::StepTrace> traces, std::span<const std::uint32_t> host_of,
                                       std::size_t hosts) {
  Bounds bounds;
  Bounds reversed;
  for (const auto& [meeting, at_hosts] : visits_of(traces, host_of)) {
    for (const auto& [a, left] : at_hosts) {
      for (const auto& [b, entered] : at_hosts) {
        if (a != b) {
          // left.first_left + offset(a) >= entered.last_entered + offset(b)
          std::int64_t& bound = bounds.try_emplace({a, b}, kUnbounded).first->second;
          bound = std::min(bound, left.first_left - entered.last_entered);
          reversed[{b, a}] = bound;
        }
      }
    }
  }
  const std::vector<std::int64_t> above = shortest_paths(bounds, hosts);
  const std::vector<std::int64_t> below = shortest_paths(reversed, hosts);  // offset >= -below
  std::vector<ClockOffset> offsets(hosts);
  for (std::size_t host = 1; host < hosts; ++host) {
    if (above[host] == kUnbounded || below[host] == kUnbounded) {
      offsets[host] = {.ns = first_began(traces, host_of, 0) - first_began(traces, host_of, host),
                       .uncertainty_ns = std::nullopt};
      continue;
    }
    // If clocks drift, the bounds may contradict each other; they then differ by the drift.
    const std::int64_t width = std::abs(above[host] + below[host]);
    offsets[host] = {.ns = (above[host] - below[host]) / 2, .uncertainty_ns = static_cast<std::uint64_t>(width) / 2};
  }
  return offsets;
}

namespace {

/// A slice of a replica, on the clock of the first host.
struct ReplicaSlice {
  std::uint64_t track = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  proto::TraceKind kind = proto::TRACE_OPERATOR;
  std::uint32_t number = 0;
  std::uint64_t step = 0;
  std::uint64_t flow = 0;
};

std::uint64_t process_of(std::uint32_t replica) {
  return kFirstTrack + std::uint64_t{replica} * kTracks;
}

class RunWriter {
 public:
  RunWriter(std::span<const proto::StepTrace> traces, const proto::Report& program, const RunTrace::Setup& setup)
      : names_(step_names(program)), setup_(setup), offsets_(clock_offsets(traces, setup.host_of, setup.hosts.size())) {
    for (const proto::StepTrace& trace : traces) {
      add_slices(trace);
    }
    // A slice that contains others comes before them.
    std::ranges::stable_sort(slices_, {}, [](const ReplicaSlice& slice) {
      return std::tuple{slice.track, slice.begin, -slice.end};
    });
  }

  std::string file() {
    std::int64_t start = std::numeric_limits<std::int64_t>::max();
    for (const ReplicaSlice& slice : slices_) {
      start = std::min(start, slice.begin);
    }
    std::uint64_t last = 0;
    std::vector<std::int64_t> open;  // Ends of slices that contain the next one.
    const auto end_until = [&](std::int64_t begin) {
      for (; !open.empty() && open.back() <= begin; open.pop_back()) {
        writer_.end(last, static_cast<std::uint64_t>(open.back() - start));
      }
    };
    for (const ReplicaSlice& slice : slices_) {
      if (slice.track != last) {
        end_until(std::numeric_limits<std::int64_t>::max());
        begin_track(last, slice.track);
        last = slice.track;
      }
      end_until(slice.begin);
      // Clocks are read between slices, so one that contains others may seem to end a moment before they do.
      open.push_back(open.empty() ? slice.end : std::min(slice.end, open.back()));
      writer_.begin({.track = slice.track,
                     .name = writer_.name(name_of(slice)),
                     .category = writer_.category(kTrackNames.at((slice.track - kFirstTrack) % kTracks)),
                     .annotation = {slice.kind == proto::TRACE_OPERATORS ? operators_ : step_,
                                    slice.kind == proto::TRACE_OPERATORS ? slice.number : slice.step},
                     .flow = slice.flow},
                    static_cast<std::uint64_t>(slice.begin - start));
    }
    end_until(std::numeric_limits<std::int64_t>::max());
    return writer_.take();
  }

 private:
  void add_slices(const proto::StepTrace& trace) {
    const std::size_t first = slices_.size();
    const std::int64_t began =
        static_cast<std::int64_t>(trace.began_ns()) + offsets_[setup_.host_of[trace.replica()]].ns;
    for (int k = 0; k < trace.kind_size(); ++k) {
      const std::int64_t begin = began + static_cast<std::int64_t>(trace.begin_ns(k));
      slices_.push_back({.track = process_of(trace.replica()) + look_of(trace.kind(k)).track,
                         .begin = begin,
                         .end = begin + static_cast<std::int64_t>(trace.length_ns(k)),
                         .kind = trace.kind(k),
                         .number = trace.number(k),
                         .step = trace.step()});
    }
    visit_meetings(trace, [&](int k, const Meeting& meeting) {
      slices_[first + static_cast<std::size_t>(k)].flow = flows_.try_emplace(meeting, flows_.size() + 1).first->second;
    });
  }

  void begin_track(std::uint64_t last, std::uint64_t track) {
    const auto replica = static_cast<std::uint32_t>((track - kFirstTrack) / kTracks);
    if (last < process_of(replica)) {
      const std::uint32_t host = setup_.host_of[replica];
      std::string name = fmt::format("replica {}, host {}", replica, setup_.hosts[host]);
      if (const std::optional<std::uint64_t> ns = offsets_[host].uncertainty_ns; !ns) {
        name += ", clock not aligned";
      } else if (*ns > 0) {
        name += fmt::format(", clock within {}", duration_text(static_cast<double>(*ns) * 1e-9));
      }
      writer_.add_process(process_of(replica), static_cast<std::int32_t>(replica) + 2, name);
    }
    writer_.add_track(track, process_of(replica), std::string(kTrackNames.at((track - kFirstTrack) % kTracks)));
  }

  std::string_view name_of(const ReplicaSlice& slice) {
    const std::string_view name = look_of(slice.kind).name;
    std::string& text = names_[slice.number].text;
    if (name.empty() && text.empty()) {
      text = fmt::format("step {} of the Program", slice.number);
    }
    return name.empty() ? text : name;
  }

  std::map<std::uint32_t, StepName> names_;
  const RunTrace::Setup& setup_;
  std::vector<ClockOffset> offsets_;
  std::map<Meeting, std::uint64_t> flows_;
  std::vector<ReplicaSlice> slices_;
  PerfettoWriter writer_{kRunSequence, PerfettoWriter::kTraceClock};
  std::uint64_t step_ = writer_.annotation("step");
  std::uint64_t operators_ = writer_.annotation("operators");
};

}  // namespace

void RunTrace::take(const proto::TracedSteps& traced) {
  if (traced.has_program()) {
    program_ = traced.program();
  }
  for (const proto::StepTrace& trace : traced.traces()) {
    take(trace);
  }
}

void RunTrace::take(const proto::StepTrace& trace) {
  slices_ += static_cast<std::uint64_t>(trace.kind_size());
  left_out_ += trace.left_out();
  if (slices_ > kSlicesMax) {
    left_out_ += static_cast<std::uint64_t>(trace.kind_size());
    return;
  }
  const bool ends = trace.step() == setup_.last_step && std::ranges::count(trace.kind(), proto::TRACE_STEP) > 0;
  ended_ += ends ? 1 : 0;
  traces_.push_back(trace);
}

std::string RunTrace::file() const {
  std::string bytes = program_.has_timeline() ? device_trace(program_, kDeviceSlicesMax).bytes : "";
  return bytes + RunWriter(traces_, program_, setup_).file();
}

std::string RunTrace::text() const {
  const auto [first, last] = std::ranges::minmax(traces_, {}, &proto::StepTrace::step);
  const std::string text = first.step() == last.step() ? fmt::format("step {}", first.step())
                                                       : fmt::format("steps {} to {}", first.step(), last.step());
  return fmt::format("{} of {}", text, counted(setup_.host_of.size(), "replica"));
}

}  // namespace poprun::launcher
