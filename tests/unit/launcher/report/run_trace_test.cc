#include "launcher/report/run_trace.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/unit/launcher/report/trace_reader.h"

namespace poprun::launcher {
namespace {

using poprun::testing::read_trace;
using poprun::testing::ReadSlice;
using poprun::testing::ReadTrace;
using ::testing::ElementsAre;

constexpr std::uint32_t kConv = 1;
constexpr std::uint32_t kAllReduce = 2;

proto::Report program() {
  proto::Report report;
  auto& function = *report.add_functions();
  function.set_name("train");
  for (const auto& [step, text] : {std::pair{kConv, "conv2d 'conv1'"}, std::pair{kAllReduce, "all_reduce of 8"}}) {
    function.add_nodes()->set_step(step);
    function.mutable_nodes(function.nodes_size() - 1)->set_text(text);
  }
  return report;
}

void add(proto::StepTrace& trace, proto::TraceKind kind, std::uint32_t number, std::uint64_t begin,
         std::uint64_t length, std::uint32_t group = 0) {
  trace.add_kind(kind);
  trace.add_number(number);
  trace.add_begin_ns(begin);
  trace.add_length_ns(length);
  trace.add_group(group);
}

/// A step whose all-reduce begins after `compute` ns of convolution and ends `end` ns after the step's beginning.
proto::StepTrace step_of(std::uint32_t replica, std::uint64_t step, std::uint64_t began, std::uint64_t compute,
                         std::uint64_t end, std::uint32_t group) {
  proto::StepTrace trace;
  trace.set_replica(replica);
  trace.set_step(step);
  trace.set_began_ns(began);
  add(trace, proto::TRACE_OPERATOR, kConv, 0, compute);
  add(trace, proto::TRACE_COLLECTIVE, kAllReduce, compute, end - compute, group);
  add(trace, proto::TRACE_STEP, 0, 0, end + 10);
  return trace;
}

void take(RunTrace& run, const proto::StepTrace& trace) {
  proto::TracedSteps traced;
  *traced.add_traces() = trace;
  run.take(traced);
}

void take(RunTrace& run, const proto::Report& program) {
  proto::TracedSteps traced;
  *traced.mutable_program() = program;
  run.take(traced);
}

TEST(RunTrace, ShowsTheStepsOfEveryReplicaAndJoinsTheirCollectives) {
  RunTrace run({.last_step = 2, .hosts = {"a"}, .host_of = {0, 0}});
  take(run, program());
  take(run, step_of(0, 1, 5'000, 100, 300, 2));
  take(run, step_of(1, 1, 5'020, 270, 290, 2));
  take(run, step_of(0, 2, 6'000, 100, 300, 2));
  EXPECT_FALSE(run.complete());
  take(run, step_of(1, 2, 6'000, 100, 300, 2));
  EXPECT_TRUE(run.complete());

  const ReadTrace trace = read_trace(run.file());

  std::map<std::string, std::vector<ReadSlice>> by_name;
  for (const ReadSlice& slice : trace.slices) {
    by_name[slice.track + ": " + slice.name].push_back(slice);
  }
  const auto& conv = by_name.at("replica 1, host a/operators: conv2d 'conv1'");
  EXPECT_EQ(conv.at(0).begin, 20U);
  EXPECT_EQ(conv.at(0).end, 290U);
  const auto& waits = by_name.at("replica 0, host a/collectives: all_reduce of 8");
  const auto& comes = by_name.at("replica 1, host a/collectives: all_reduce of 8");
  ASSERT_EQ(waits.size(), 2U);
  EXPECT_EQ(waits[0].flow, comes[0].flow);
  EXPECT_EQ(waits[1].flow, comes[1].flow);
  EXPECT_NE(waits[0].flow, waits[1].flow);
  EXPECT_NE(waits[0].flow, 0U);
  EXPECT_EQ(by_name.at("replica 0, host a/steps: step").size(), 2U);
  EXPECT_EQ(run.text(), "steps 1 to 2 of 2 replicas");
}

TEST(RunTrace, OfAsManySlicesAsReplicasSendStaysBelow50MB) {
  constexpr std::uint32_t kReplicas = 16;
  constexpr std::uint64_t kSteps = 20;
  constexpr std::uint64_t kSlices = 350'000 / (kReplicas * kSteps);  // The limit in replica/main.cc.
  constexpr std::uint64_t kBars = 100'000;
  RunTrace run({.last_step = kSteps, .hosts = {"a"}, .host_of = std::vector<std::uint32_t>(kReplicas, 0)});
  proto::Report report = program();
  proto::Timeline& timeline = *report.mutable_timeline();
  timeline.set_clock_hz(1e9);
  for (std::uint64_t k = 0; k < kBars; ++k) {
    timeline.add_step(kConv);
    timeline.add_ipu(0);
    timeline.add_lane(proto::LANE_TILES);
    timeline.add_doing(k % 2 == 0 ? proto::DOING_COMPUTE : proto::DOING_EXCHANGE);
    timeline.add_begin(k * 3'000'000);
    timeline.add_length(2'000'000);
    timeline.add_micro_batch(static_cast<std::uint32_t>(k));
    timeline.add_count(1);
    timeline.add_distance(0);
  }
  take(run, report);
  for (std::uint32_t replica = 0; replica < kReplicas; ++replica) {
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      proto::StepTrace trace;
      trace.set_replica(replica);
      trace.set_step(step);
      trace.set_began_ns(1'000'000'000'000'000 + step * 60'000'000'000);
      for (std::uint64_t k = 0; k < kSlices; ++k) {
        add(trace, proto::TRACE_COLLECTIVE, kAllReduce, k * 50'000'000, 50'000'000, kReplicas);
      }
      add(trace, proto::TRACE_STEP, 0, 0, 59'000'000'000);
      take(run, trace);
    }
  }

  EXPECT_LT(run.file().size(), 50'000'000U);
  EXPECT_GT(run.file().size(), 10'000'000U);
}

TEST(RunTrace, JoinsOnlyCollectivesOfTheSameGroup) {
  RunTrace run({.last_step = 1, .hosts = {"a"}, .host_of = {0, 0, 0, 0}});
  for (std::uint32_t replica = 0; replica < 4; ++replica) {
    take(run, step_of(replica, 1, 100, 10, 30, 2));
  }

  std::map<std::uint64_t, std::set<std::string>> joined;
  for (const ReadSlice& slice : read_trace(run.file()).slices) {
    if (slice.flow != 0) {
      joined[slice.flow].insert(slice.track.substr(0, 9));
    }
  }

  ASSERT_EQ(joined.size(), 2U);
  EXPECT_THAT(joined.begin()->second, ElementsAre("replica 0", "replica 1"));
  EXPECT_THAT(std::next(joined.begin())->second, ElementsAre("replica 2", "replica 3"));
}

TEST(RunTrace, DrawsFunctionsAndPausesInsideAndBetweenSteps) {
  RunTrace run({.last_step = 1, .hosts = {"a"}, .host_of = {0}});
  proto::StepTrace step;
  step.set_step(1);
  step.set_began_ns(1'000);
  take(run, program());
  add(step, proto::TRACE_OPERATORS, 12, 5, 10);
  add(step, proto::TRACE_CALL, kConv, 0, 20);
  add(step, proto::TRACE_STEP, 0, 0, 30);
  proto::StepTrace pause;
  pause.set_step(1);
  pause.set_began_ns(1'040);
  add(pause, proto::TRACE_CHECKPOINT, 0, 0, 7);
  take(run, step);
  take(run, pause);

  const std::vector<ReadSlice> slices = read_trace(run.file()).slices;

  std::vector<std::string> names;
  for (const ReadSlice& slice : slices) {
    names.push_back(fmt::format("{} {} to {}", slice.name, slice.begin, slice.end));
  }
  EXPECT_THAT(names, ElementsAre("step 0 to 30", "conv2d 'conv1' 0 to 20", "checkpoint 40 to 47", "operators 5 to 15"));
}

/// All-reduces of replicas on hosts whose clocks differ. Replicas enter at random; all leave after the last one, each
/// up to `late` ns later.
class ClocksOfHosts : public ::testing::Test {
 protected:
  std::vector<proto::StepTrace> traces(const std::vector<std::int64_t>& offsets, std::uint32_t group, int steps,
                                       std::uint64_t late) {
    std::vector<proto::StepTrace> traces;
    const auto hosts = static_cast<std::uint32_t>(offsets.size());
    for (int step = 1; step <= steps; ++step) {
      const std::uint64_t start = 1'000'000'000'000 + static_cast<std::uint64_t>(step) * 10'000'000;
      for (std::uint32_t first = 0; first < 2 * hosts; first += group) {
        std::vector<std::uint64_t> enters;
        for (std::uint32_t r = 0; r < group; ++r) {
          enters.push_back(start + random_() % 1'000'000);
        }
        const std::uint64_t last = std::ranges::max(enters);
        for (std::uint32_t r = 0; r < group; ++r) {
          const std::uint64_t leaves = last + 1 + random_() % late;
          // The clock of a host lies `offset` behind.
          const auto began = static_cast<std::uint64_t>(static_cast<std::int64_t>(start) - offsets[(first + r) / 2]);
          traces.push_back(
              step_of(first + r, static_cast<std::uint64_t>(step), began, enters[r] - start, leaves - start, group));
        }
      }
    }
    return traces;
  }

  std::mt19937 random_{7};
};

TEST_F(ClocksOfHosts, AreAlignedByCollectivesWithinTheStatedUncertainty) {
  const std::vector<std::int64_t> offsets = {0, 5'000'000'000'000'000, -3'000'000, 17};
  std::vector<std::uint32_t> host_of;
  for (std::uint32_t r = 0; r < 8; ++r) {
    host_of.push_back(r / 2);
  }

  const std::vector<ClockOffset> found = clock_offsets(traces(offsets, 8, 200, 20'000), host_of, offsets.size());

  ASSERT_EQ(found.size(), offsets.size());
  for (std::size_t host = 0; host < offsets.size(); ++host) {
    ASSERT_TRUE(found[host].uncertainty_ns);
    EXPECT_LE(std::abs(found[host].ns - offsets[host]), static_cast<std::int64_t>(*found[host].uncertainty_ns));
    EXPECT_LE(*found[host].uncertainty_ns, 10'000U) << "many collectives bound it to about half of what replicas lag";
  }
}

TEST_F(ClocksOfHosts, WithoutACommonCollectiveBeginTogether) {
  const std::vector<ClockOffset> found =
      clock_offsets(traces({0, 1'000'000}, 2, 3, 1'000), std::vector<std::uint32_t>{0, 0, 1, 1}, 2);

  EXPECT_FALSE(found[1].uncertainty_ns);
  EXPECT_EQ(found[1].ns, 1'000'000) << "their first steps begin together";
  RunTrace run({.last_step = 3, .hosts = {"a", "b"}, .host_of = {0, 0, 1, 1}});
  for (const proto::StepTrace& trace : traces({0, 1'000'000}, 2, 3, 1'000)) {
    take(run, trace);
  }
  const ReadTrace read_back = read_trace(run.file());
  EXPECT_TRUE(std::ranges::any_of(
      read_back.tracks, [](const auto& track) { return track.second == "replica 2, host b, clock not aligned"; }));
}

TEST_F(ClocksOfHosts, AreAlignedThroughAnotherHost) {
  // Hosts 0 and 2 share no collective, but both share one with host 1.
  std::vector<proto::StepTrace> all;
  const std::vector<std::int64_t> offsets = {0, 4'000, -9'000};
  for (int step = 1; step <= 100; ++step) {
    for (const auto& [one, two] : {std::pair{0U, 1U}, std::pair{2U, 3U}}) {
      const std::uint64_t start = 1'000'000 + static_cast<std::uint64_t>(step) * 100'000;
      const std::uint64_t one_enters = random_() % 1'000;
      const std::uint64_t two_enters = random_() % 1'000;
      const std::uint64_t leave = std::max(one_enters, two_enters) + 50;
      for (const auto& [replica, enters] : {std::pair{one, one_enters}, std::pair{two, two_enters}}) {
        const std::uint32_t host = (replica + 1) / 2;  // Replicas 1 and 2 are on host 1.
        all.push_back(step_of(replica, static_cast<std::uint64_t>(step),
                              start - static_cast<std::uint64_t>(offsets[host]), enters, leave, 2));
      }
    }
  }

  const std::vector<ClockOffset> found = clock_offsets(all, std::vector<std::uint32_t>{0, 1, 1, 2}, 3);

  ASSERT_TRUE(found[2].uncertainty_ns);
  EXPECT_LE(std::abs(found[2].ns - offsets[2]), static_cast<std::int64_t>(*found[2].uncertainty_ns));
  EXPECT_LE(*found[2].uncertainty_ns, 200U);
}

}  // namespace
}  // namespace poprun::launcher
