#include "launcher/wire/bounds.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace poprun::launcher {
namespace {

constexpr std::size_t kNameBytesMax = 255;
constexpr std::size_t kActivityBytesMax = 4 * 1024;
constexpr std::size_t kMessageBytesMax = std::size_t{1} << 20;
constexpr int kLinksMax = 4096;
constexpr std::uint64_t kVariablesMax = 65'536;
constexpr std::uint64_t kVariableBytesMax = std::uint64_t{1} << 44;  // All variables together have at most 2^60 B.
constexpr std::uint32_t kIpusMax = 256;                              // In one replica.
constexpr double kClockMin = 1e6;
constexpr double kClockMax = 1e12;  // Hz.
constexpr std::uint64_t kBarsMax = 1U << 30;
constexpr std::uint64_t kCyclesMax = std::uint64_t{1} << 50;
constexpr std::uint64_t kNanosecondsMax = std::uint64_t{1} << 60;  // 36 years. Sums fit in 63 bits.
constexpr int kListMax = 64;
constexpr int kDimensionsMax = 32;
constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 56;  // The size in bytes then also fits in 64 bits.

Status check_at_most(std::string_view what, std::uint64_t had, std::uint64_t most) {
  if (had <= most) {
    return {};
  }
  return fail(ErrorCode::kUsage, fmt::format("{}: the limit is {}, but the message contains {}", what, most, had));
}

Status check_below(std::string_view what, std::uint64_t had, std::uint64_t end) {
  if (had < end) {
    return {};
  }
  return fail(ErrorCode::kUsage, fmt::format("{} {} does not exist; its number must be below {}", what, had, end));
}

Status check_seconds(std::string_view what, double seconds) {
  if (std::isfinite(seconds) && seconds >= 0) {
    return {};
  }
  return fail(ErrorCode::kUsage, fmt::format("the time of {} cannot be {} s", what, seconds));
}

template <typename Texts>
Status check_texts(std::string_view what, const Texts& texts, std::size_t bytes_max) {
  POPRUN_TRY(check_at_most(what, static_cast<std::uint64_t>(texts.size()), kListMax));
  for (const std::string& text : texts) {
    POPRUN_TRY(check_at_most(what, text.size(), bytes_max));
  }
  return {};
}

Status check_progress(const proto::ReplicaProgress& progress) {
  POPRUN_TRY(check_at_most("bytes of an activity", progress.activity().size(), kActivityBytesMax));
  POPRUN_TRY(check_seconds("an activity", progress.activity_seconds()));
  POPRUN_TRY(check_seconds("the wait for data", progress.data_wait_seconds()));
  POPRUN_TRY(check_seconds("the last progress of the data", progress.data_news_seconds()));
  return check_seconds("the operators", progress.times().compute_seconds());
}

Status check_shape(const google::protobuf::RepeatedField<std::int64_t>& shape) {
  POPRUN_TRY(check_at_most("dimensions of a tensor", static_cast<std::uint64_t>(shape.size()), kDimensionsMax));
  if (std::ranges::any_of(shape, [](std::int64_t size) { return size < 0; })) {
    return fail(ErrorCode::kUsage, "a tensor has a negative dimension");
  }
  std::uint64_t elements = 1;
  for (const std::int64_t size : shape) {
    const auto factor = std::max<std::uint64_t>(static_cast<std::uint64_t>(size), 1);
    if (factor > kElementsMax / elements) {
      return fail(ErrorCode::kUsage,
                  fmt::format("a tensor [{}] has more than {} elements", fmt::join(shape, ", "), kElementsMax));
    }
    elements *= factor;
  }
  return {};
}

}  // namespace

Status check_bounds(const proto::JoinRequest& request, const JobSize& job) {
  POPRUN_TRY(check_below("instance", request.instance(), job.instances));
  POPRUN_TRY(check_at_most("bytes of a host's name", request.host().size(), kNameBytesMax));
  POPRUN_TRY(check_at_most("bytes of a version", request.version().size(), kNameBytesMax));
  POPRUN_TRY(check_at_most("bytes of a version", request.onednn_version().size(), kNameBytesMax));
  return check_texts("instruction sets", request.cpu_isas(), kNameBytesMax);
}

Status check_bounds(const proto::Beat& beat, const JobSize& job) {
  POPRUN_TRY(check_below("instance", beat.instance(), job.instances));
  POPRUN_TRY(check_at_most("replicas of an instance", static_cast<std::uint64_t>(beat.replicas_size()),
                           job.replicas_per_instance));
  POPRUN_TRY(check_at_most("connections of an instance", static_cast<std::uint64_t>(beat.links_size()), kLinksMax));
  for (const proto::TcpLink& link : beat.links()) {
    POPRUN_TRY(check_at_most("bytes of an address", link.local().size(), kNameBytesMax));
    POPRUN_TRY(check_at_most("bytes of an address", link.peer().size(), kNameBytesMax));
  }
  for (const proto::ReplicaProgress& progress : beat.replicas()) {
    if (progress.replica() / job.replicas_per_instance != beat.instance()) {
      return fail(ErrorCode::kUsage,
                  fmt::format("replica {} does not belong to instance {}", progress.replica(), beat.instance()));
    }
    POPRUN_TRY(check_progress(progress));
  }
  return {};
}

Status check_bounds(const proto::Failure& failure, const JobSize& job) {
  const std::uint64_t replicas = std::uint64_t{job.instances} * job.replicas_per_instance;
  POPRUN_TRY(check_below("instance", failure.instance(), job.instances));
  POPRUN_TRY(check_below("replica", failure.replica(), replicas));
  POPRUN_TRY(check_at_most("bytes of a host's name", failure.host().size(), kNameBytesMax));
  POPRUN_TRY(check_at_most("bytes of a message", failure.message().size(), kMessageBytesMax));
  POPRUN_TRY(check_at_most("bytes of an address", failure.address().size(), kNameBytesMax));
  POPRUN_TRY(check_at_most("exit code", failure.exit_code(), 255));
  POPRUN_TRY(check_texts("last collectives", failure.recent_calls(), kActivityBytesMax));
  POPRUN_TRY(check_at_most("missing replicas", static_cast<std::uint64_t>(failure.missing_size()), replicas));
  for (const std::uint32_t missing : failure.missing()) {
    POPRUN_TRY(check_below("replica", missing, replicas));
  }
  return check_progress(failure.progress());
}

namespace {

/// Checks lists that store rows by column, and so must have the same size.
Status check_columns(std::string_view what, int rows, std::initializer_list<int> columns) {
  if (std::ranges::all_of(columns, [rows](int size) { return size == rows; })) {
    return {};
  }
  return fail(ErrorCode::kUsage, fmt::format("{}: the columns have different sizes", what));
}

Status check_timeline(const proto::Timeline& timeline) {
  POPRUN_TRY(check_columns(
      "the bars of a timeline", timeline.step_size(),
      {timeline.ipu_size(), timeline.lane_size(), timeline.doing_size(), timeline.begin_size(), timeline.length_size(),
       timeline.micro_batch_size(), timeline.count_size(), timeline.distance_size()}));
  const bool known = std::ranges::all_of(timeline.lane(), proto::Lane_IsValid) &&
                     std::ranges::all_of(timeline.doing(), proto::Doing_IsValid) &&
                     std::ranges::all_of(timeline.ipu(), [](std::uint32_t ipu) { return ipu < kIpusMax; });
  if (!known || (timeline.step_size() > 0 && !(timeline.clock_hz() >= kClockMin && timeline.clock_hz() <= kClockMax))) {
    return fail(ErrorCode::kUsage, "a timeline has an unknown lane, activity, IPU or clock");
  }
  for (int k = 0; k < timeline.step_size(); ++k) {
    POPRUN_TRY(check_at_most("bars of a timeline", timeline.count(k), kBarsMax));
    const std::uint64_t most = std::max({timeline.begin(k), timeline.length(k), timeline.distance(k)});
    POPRUN_TRY(check_at_most("cycles of a timeline", most, kCyclesMax / std::max(timeline.count(k), 1U)));
  }
  return {};
}

Status check_trace(const proto::StepTrace& trace, const JobSize& job) {
  const std::uint64_t replicas = std::uint64_t{job.instances} * job.replicas_per_instance;
  POPRUN_TRY(check_below("replica", trace.replica(), replicas));
  POPRUN_TRY(check_columns("the slices of a trace", trace.kind_size(),
                           {trace.number_size(), trace.begin_ns_size(), trace.length_ns_size(), trace.group_size()}));
  if (!std::ranges::all_of(trace.kind(), proto::TraceKind_IsValid)) {
    return fail(ErrorCode::kUsage, "a trace has slices of an unknown kind");
  }
  POPRUN_TRY(check_at_most("ns of a trace", trace.began_ns(), kNanosecondsMax));
  for (int k = 0; k < trace.kind_size(); ++k) {
    POPRUN_TRY(check_at_most("ns of a trace", std::max(trace.begin_ns(k), trace.length_ns(k)), kNanosecondsMax));
    POPRUN_TRY(check_at_most("replicas of a collective", trace.group(k), replicas));
  }
  return {};
}

}  // namespace

Status check_bounds(const proto::ReportItem& item, const JobSize& job) {
  for (const proto::StepTrace& trace : item.traced().traces()) {
    POPRUN_TRY(check_trace(trace, job));
  }
  POPRUN_TRY(check_timeline(item.traced().program().timeline()));
  if (item.has_output() && item.output().shape().empty()) {
    return fail(ErrorCode::kUsage, "an output has no shape");
  }
  POPRUN_TRY(check_shape(item.output().shape()));
  POPRUN_TRY(check_shape(item.weights().shape()));
  POPRUN_TRY(check_at_most("bytes of a tensor's name", item.weights().name().size(), kActivityBytesMax));
  POPRUN_TRY(check_shape(item.dumped().chunk().shape()));
  return check_at_most("bytes of a tensor's name", item.dumped().chunk().name().size(), kActivityBytesMax);
}

Status check_bounds(const proto::StatePart& part, const JobSize& job) {
  const std::uint64_t replicas = std::uint64_t{job.instances} * job.replicas_per_instance;
  POPRUN_TRY(check_below("replica", part.replica(), replicas));
  POPRUN_TRY(check_at_most("parts of a checkpoint", part.parts(), replicas));
  POPRUN_TRY(
      check_at_most("variables of a checkpoint", static_cast<std::uint64_t>(part.variables_size()), kVariablesMax));
  POPRUN_TRY(
      check_at_most("slices of a part of a checkpoint", static_cast<std::uint64_t>(part.slices_size()), kVariablesMax));
  for (const proto::StateVariable& variable : part.variables()) {
    POPRUN_TRY(check_at_most("bytes of a variable's name", variable.name().size(), kActivityBytesMax));
    POPRUN_TRY(check_at_most("bytes of a type", variable.type().size(), kNameBytesMax));
    POPRUN_TRY(check_shape(variable.shape()));
    POPRUN_TRY(check_at_most("bytes of a variable", variable.bytes(), kVariableBytesMax));
  }
  for (const proto::StateSlice& slice : part.slices()) {
    POPRUN_TRY(check_below("variable", slice.variable(), static_cast<std::uint64_t>(part.variables_size())));
    const std::uint64_t bytes = part.variables(static_cast<int>(slice.variable())).bytes();
    POPRUN_TRY(check_at_most("first byte of a slice", slice.offset(), bytes));
    POPRUN_TRY(check_at_most("bytes of a slice", slice.bytes(), bytes - slice.offset()));
  }
  return {};
}

}  // namespace poprun::launcher
