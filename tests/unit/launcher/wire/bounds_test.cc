#include "launcher/wire/bounds.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

namespace poprun::launcher {
namespace {

using ::testing::HasSubstr;

constexpr JobSize kTwoReplicas{.instances = 2, .replicas_per_instance = 1};

TEST(Bounds, OfABeatAreThoseOfItsInstance) {
  const JobSize job{.instances = 4, .replicas_per_instance = 2};
  proto::Beat beat;
  beat.set_instance(1);
  beat.add_replicas()->set_replica(3);
  EXPECT_TRUE(check_bounds(beat, job));
  beat.mutable_replicas(0)->set_activity_seconds(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(check_bounds(beat, job));
  beat.mutable_replicas(0)->set_activity_seconds(-1);
  EXPECT_FALSE(check_bounds(beat, job));
  beat.mutable_replicas(0)->set_activity_seconds(0);
  beat.mutable_replicas(0)->set_activity(std::string(5000, 'x'));
  EXPECT_FALSE(check_bounds(beat, job));
  beat.mutable_replicas(0)->set_activity("");
  beat.mutable_replicas(0)->set_replica(4);
  EXPECT_THAT(check_bounds(beat, job).error().message, HasSubstr("does not belong to instance 1"));
  beat.clear_replicas();
  beat.set_instance(4);
  EXPECT_FALSE(check_bounds(beat, job));
}

TEST(Bounds, OfATensorAreElementsThatCanBeCounted) {
  proto::ReportItem item;
  item.mutable_output()->add_shape(std::int64_t{1} << 56);
  item.mutable_output()->add_shape(0);
  EXPECT_TRUE(check_bounds(item, kTwoReplicas));
  item.mutable_output()->add_shape(256);  // 2^64 bytes overflow a 64-bit counter to 0.
  EXPECT_THAT(check_bounds(item, kTwoReplicas).error().message,
              HasSubstr("a tensor [72057594037927936, 0, 256] has more than"));
}

TEST(Bounds, OfAPartOfACheckpointAre65536VariablesAndSlices) {
  const JobSize job{.instances = 1, .replicas_per_instance = 1};
  proto::StatePart part;
  for (int k = 0; k < 65'536; ++k) {
    part.add_variables();
    part.add_slices();
  }
  EXPECT_TRUE(check_bounds(part, job));
  part.add_slices();
  EXPECT_THAT(check_bounds(part, job).error().message,
              HasSubstr("slices of a part of a checkpoint: the limit is 65536, but the message contains 65537"));
  part.mutable_slices()->RemoveLast();
  part.add_variables();
  EXPECT_THAT(check_bounds(part, job).error().message,
              HasSubstr("variables of a checkpoint: the limit is 65536, but the message contains 65537"));
  part.mutable_variables()->RemoveLast();
  part.mutable_variables(0)->set_name(std::string(5000, 'x'));
  EXPECT_THAT(check_bounds(part, job).error().message, HasSubstr("bytes of a variable's name"));
}

/// A change to a valid message, with the most that is allowed and one more, and what the refusal mentions.
template <typename Message>
struct Limit {
  std::function<void(Message&, std::uint64_t)> set;
  std::uint64_t most;
  std::string mentions;
};

template <typename Message>
void expect_limits(const Message& valid, const std::vector<Limit<Message>>& limits,
                   const std::function<Status(const Message&)>& check) {
  EXPECT_TRUE(check(valid));
  for (std::size_t i = 0; i < limits.size(); ++i) {
    Message message = valid;
    limits[i].set(message, limits[i].most);
    EXPECT_TRUE(check(message)) << i << ": " << check(message).error().message;
    message = valid;
    limits[i].set(message, limits[i].most + 1);
    const Status refused = check(message);
    ASSERT_FALSE(refused) << i << ": " << limits[i].mentions;
    EXPECT_THAT(refused.error().message, HasSubstr(limits[i].mentions)) << i;
  }
}

std::string text(std::uint64_t bytes) {
  return std::string(bytes, 'x');
}

/// Sets a repeated field to `count` elements.
template <typename List, typename Add>
void fill(List& list, std::uint64_t count, const Add& add) {
  list.Clear();
  for (std::uint64_t k = 0; k < count; ++k) {
    add(k);
  }
}

constexpr JobSize kJob{.instances = 4, .replicas_per_instance = 2};

TEST(Bounds, OfAJoiningInstanceHold) {
  using Request = proto::JoinRequest;
  expect_limits<Request>(
      {},
      {{[](Request& r, std::uint64_t n) { r.set_instance(static_cast<std::uint32_t>(n)); }, 3, "instance 4"},
       {[](Request& r, std::uint64_t n) { r.set_host(text(n)); }, 255, "bytes of a host's name"},
       {[](Request& r, std::uint64_t n) { r.set_version(text(n)); }, 255, "bytes of a version"},
       {[](Request& r, std::uint64_t n) { r.set_onednn_version(text(n)); }, 255, "bytes of a version"},
       {[](Request& r, std::uint64_t n) { r.add_cpu_isas(text(n)); }, 255, "instruction sets"},
       {[](Request& r, std::uint64_t n) {
          fill(*r.mutable_cpu_isas(), n, [&](std::uint64_t) { r.add_cpu_isas("avx2"); });
        },
        64, "instruction sets"}},
      [](const Request& r) { return check_bounds(r, kJob); });
}

TEST(Bounds, OfAHeartbeatHold) {
  using Beat = proto::Beat;
  expect_limits<Beat>(
      {},
      {{[](Beat& b, std::uint64_t n) {
          fill(*b.mutable_replicas(), n, [&](std::uint64_t) { b.add_replicas()->set_replica(1); });
        },
        2, "replicas of an instance"},
       {[](Beat& b, std::uint64_t n) { fill(*b.mutable_links(), n, [&](std::uint64_t) { b.add_links(); }); }, 4096,
        "connections of an instance"},
       {[](Beat& b, std::uint64_t n) { b.add_links()->set_local(text(n)); }, 255, "bytes of an address"},
       {[](Beat& b, std::uint64_t n) { b.add_links()->set_peer(text(n)); }, 255, "bytes of an address"},
       {[](Beat& b, std::uint64_t n) { b.add_replicas()->set_activity(text(n)); }, 4096, "bytes of an activity"}},
      [](const Beat& b) { return check_bounds(b, kJob); });
  for (const double seconds : {-1.0, std::numeric_limits<double>::infinity()}) {
    Beat beat;
    beat.add_replicas()->set_data_wait_seconds(seconds);
    EXPECT_THAT(check_bounds(beat, kJob).error().message, HasSubstr("the wait for data"));
    beat.mutable_replicas(0)->set_data_wait_seconds(0);
    beat.mutable_replicas(0)->set_data_news_seconds(seconds);
    EXPECT_THAT(check_bounds(beat, kJob).error().message, HasSubstr("the last progress of the data"));
    beat.mutable_replicas(0)->set_data_news_seconds(0);
    beat.mutable_replicas(0)->mutable_times()->set_compute_seconds(seconds);
    EXPECT_THAT(check_bounds(beat, kJob).error().message, HasSubstr("the operators"));
  }
}

TEST(Bounds, OfAFailureHold) {
  using Failure = proto::Failure;
  expect_limits<Failure>(
      {},
      {{[](Failure& f, std::uint64_t n) { f.set_instance(static_cast<std::uint32_t>(n)); }, 3, "instance 4"},
       {[](Failure& f, std::uint64_t n) { f.set_replica(static_cast<std::uint32_t>(n)); }, 7, "replica 8"},
       {[](Failure& f, std::uint64_t n) { f.set_host(text(n)); }, 255, "bytes of a host's name"},
       {[](Failure& f, std::uint64_t n) { f.set_message(text(n)); }, 1 << 20, "bytes of a message"},
       {[](Failure& f, std::uint64_t n) { f.set_address(text(n)); }, 255, "bytes of an address"},
       {[](Failure& f, std::uint64_t n) { f.set_exit_code(static_cast<std::uint32_t>(n)); }, 255, "exit code"},
       {[](Failure& f, std::uint64_t n) { f.add_recent_calls(text(n)); }, 4096, "last collectives"},
       {[](Failure& f, std::uint64_t n) {
          fill(*f.mutable_recent_calls(), n, [&](std::uint64_t) { f.add_recent_calls("all_reduce"); });
        },
        64, "last collectives"},
       {[](Failure& f, std::uint64_t n) { fill(*f.mutable_missing(), n, [&](std::uint64_t) { f.add_missing(0); }); }, 8,
        "missing replicas"},
       {[](Failure& f, std::uint64_t n) { f.add_missing(static_cast<std::uint32_t>(n)); }, 7, "replica 8"},
       {[](Failure& f, std::uint64_t n) { f.mutable_progress()->set_activity(text(n)); }, 4096,
        "bytes of an activity"}},
      [](const Failure& f) { return check_bounds(f, kJob); });
}

TEST(Bounds, OfResultsHold) {
  using Item = proto::ReportItem;
  const auto shape = [](auto* tensor, std::uint64_t dimensions) {
    for (std::uint64_t k = 0; k < dimensions; ++k) {
      tensor->add_shape(1);
    }
  };
  expect_limits<Item>({},
                      {{[&](Item& i, std::uint64_t n) { shape(i.mutable_output(), n); }, 32, "dimensions of a tensor"},
                       {[&](Item& i, std::uint64_t n) { shape(i.mutable_weights(), n); }, 32, "dimensions of a tensor"},
                       {[&](Item& i, std::uint64_t n) { shape(i.mutable_dumped()->mutable_chunk(), n); }, 32,
                        "dimensions of a tensor"}},
                      [](const Item& i) { return check_bounds(i, kTwoReplicas); });
  expect_limits<Item>(
      {},
      {{[](Item& i, std::uint64_t n) { i.mutable_weights()->set_name(text(n)); }, 4096, "bytes of a tensor's name"},
       {[](Item& i, std::uint64_t n) { i.mutable_dumped()->mutable_chunk()->set_name(text(n)); }, 4096,
        "bytes of a tensor's name"}},
      [](const Item& i) { return check_bounds(i, kTwoReplicas); });
  Item item;
  item.mutable_output();
  EXPECT_THAT(check_bounds(item, kTwoReplicas).error().message, HasSubstr("an output has no shape"));
  item.mutable_output()->add_shape(-1);
  EXPECT_THAT(check_bounds(item, kTwoReplicas).error().message, HasSubstr("negative dimension"));
}

TEST(Bounds, OfATraceHold) {
  proto::ReportItem valid;
  proto::TracedSteps& traced = *valid.mutable_traced();
  proto::StepTrace& trace = *traced.add_traces();
  trace.set_replica(1);
  trace.add_kind(proto::TRACE_COLLECTIVE);
  trace.add_number(3);
  trace.add_begin_ns(0);
  trace.add_length_ns(5);
  trace.add_group(2);
  proto::Timeline& timeline = *traced.mutable_program()->mutable_timeline();
  timeline.set_clock_hz(1e9);
  timeline.add_step(0);
  timeline.add_ipu(0);
  timeline.add_lane(proto::LANE_TILES);
  timeline.add_doing(proto::DOING_SYNC);
  timeline.add_begin(0);
  timeline.add_length(1);
  timeline.add_micro_batch(0);
  timeline.add_count(1);
  timeline.add_distance(0);
  ASSERT_TRUE(check_bounds(valid, kTwoReplicas)) << check_bounds(valid, kTwoReplicas).error().message;
  using Damage = std::function<void(proto::StepTrace&, proto::Timeline&)>;
  for (const auto& [damage, message] : std::vector<std::pair<Damage, std::string>>{
           {[](auto&t, auto&) { t.set_replica(2); }, "replica 2 does not exist"},
           {[](auto&t, auto&) { t.add_number(1); }, "the columns have different sizes"},
           {[](auto&t, auto&) { t.set_group(0, 3); }, "replicas of a collective"},
           {[](auto&t, auto&) { t.set_length_ns(0, ~std::uint64_t{0}); }, "ns of a trace"},
           {[](auto&t, auto&) { t.set_began_ns(~std::uint64_t{0}); }, "ns of a trace"},
           {[](auto&, auto&bars) { bars.add_count(1); }, "the columns have different sizes"},
           {[](auto&, auto&bars) { bars.set_doing(0, static_cast<proto::Doing>(6)); }, "unknown lane, activity"},
           {[](auto&, auto&bars) { bars.set_lane(0, static_cast<proto::Lane>(3)); }, "unknown lane, activity"},
           {[](auto&, auto&bars) { bars.set_ipu(0, 256); }, "unknown lane, activity"},
           {[](auto&, auto&bars) { bars.set_clock_hz(0); }, "unknown lane, activity"},
           {[](auto&, auto&bars) { bars.set_clock_hz(std::numeric_limits<double>::quiet_NaN()); }, "unknown lane"},
           {[](auto&, auto&bars) { bars.set_distance(0, ~std::uint64_t{0}); }, "cycles of a timeline"}}) {
    proto::ReportItem item = valid;
    proto::StepTrace& damaged = *item.mutable_traced()->mutable_traces(0);
    damage(damaged, *item.mutable_traced()->mutable_program()->mutable_timeline());
    const Status checked = check_bounds(item, kTwoReplicas);
    ASSERT_FALSE(checked) << message;
    EXPECT_THAT(checked.error().message, HasSubstr(message));
  }
}

TEST(Bounds, OfAPartOfACheckpointHold) {
  using Part = proto::StatePart;
  Part valid;
  valid.add_variables()->set_bytes(100);
  valid.add_slices();
  expect_limits<Part>(
      valid,
      {{[](Part& p, std::uint64_t n) { p.set_replica(static_cast<std::uint32_t>(n)); }, 7, "replica 8"},
       {[](Part& p, std::uint64_t n) { p.set_parts(static_cast<std::uint32_t>(n)); }, 8, "parts of a checkpoint"},
       {[](Part& p, std::uint64_t n) { p.mutable_variables(0)->set_name(text(n)); }, 4096,
        "bytes of a variable's name"},
       {[](Part& p, std::uint64_t n) { p.mutable_variables(0)->set_type(text(n)); }, 255, "bytes of a type"},
       {[](Part& p, std::uint64_t n) {
          fill(*p.mutable_variables(0)->mutable_shape(), n,
               [&](std::uint64_t) { p.mutable_variables(0)->add_shape(1); });
        },
        32, "dimensions of a tensor"},
       {[](Part& p, std::uint64_t n) { p.mutable_variables(0)->set_bytes(n); }, std::uint64_t{1} << 44,
        "bytes of a variable"},
       {[](Part& p, std::uint64_t n) { p.mutable_slices(0)->set_variable(static_cast<std::uint32_t>(n)); }, 0,
        "variable 1"},
       {[](Part& p, std::uint64_t n) { p.mutable_slices(0)->set_offset(n); }, 100, "first byte of a slice"},
       {[](Part& p, std::uint64_t n) {
          p.mutable_slices(0)->set_offset(60);
          p.mutable_slices(0)->set_bytes(n);
        },
        40, "bytes of a slice"}},
      [](const Part& p) { return check_bounds(p, kJob); });
}

}  // namespace
}  // namespace poprun::launcher
