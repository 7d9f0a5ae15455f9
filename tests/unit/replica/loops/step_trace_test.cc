#include "replica/loops/step_trace.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/unit/replica/training_job.h"

namespace poprun::step_trace_test {
namespace {

using namespace testing;  // NOLINT: the made-up job.

/// Returns a job that trains small-cnn on two replicas for four steps.
proto::RunConfig job_of(std::uint32_t micro_batches) {
  proto::RunConfig job = config(2, 4);
  job.mutable_training()->set_steps(4);
  job.mutable_training()->set_gradient_accumulation(micro_batches);
  return job;
}

Program program_of(const proto::RunConfig& job) {
  auto program = compile(*compile_options(job, dataset()));
  EXPECT_TRUE(program) << program.error().message;
  return *program;
}

/// Traces steps 2 and 3 of both replicas. Returns the traces of each.
std::vector<std::vector<proto::StepTrace>> traced(std::uint64_t slices_max, std::uint32_t micro_batches = 1) {
  const proto::RunConfig job = job_of(micro_batches);
  const Program program = program_of(job);
  std::vector<std::vector<proto::StepTrace>> traces(2);
  std::vector<std::unique_ptr<StepTrace>> watchers;
  for (std::uint32_t r = 0; r < 2; ++r) {
    watchers.push_back(std::make_unique<StepTrace>(
        program, StepTrace::Setup{.replica = r, .replicas = 2, .first = 2, .last = 3, .slices_max = slices_max},
        [&traces, r](const proto::TracedSteps& traced) {
          traces[r].insert(traces[r].end(), traced.traces().begin(), traced.traces().end());
        }));
  }
  run_program(job, program, {}, kToTheEnd, {.watcher = [&](std::uint32_t r) { return watchers[r].get(); }});
  return traces;
}

/// Counts the steps that run in a function, with its calls and the steps in them.
std::ptrdiff_t steps_in(const Program& program, const std::string& function);

std::ptrdiff_t steps_in(const Program& program, const google::protobuf::RepeatedPtrField<proto::Step>& steps) {
  std::ptrdiff_t count = 0;
  for (const proto::Step& step : steps) {
    count += step.has_repeat() ? step.repeat().count() * steps_in(program, step.repeat().steps()) : 1;
    count += step.has_call() ? steps_in(program, step.call().function()) : 0;
  }
  return count;
}

std::ptrdiff_t steps_in(const Program& program, const std::string& function) {
  return steps_in(program, find_function(program, function)->steps());
}

std::uint64_t sum_of(const proto::StepTrace& trace, std::vector<proto::TraceKind> kinds) {
  std::uint64_t sum = 0;
  for (int k = 0; k < trace.kind_size(); ++k) {
    sum += std::ranges::count(kinds, trace.kind(k)) > 0 ? trace.length_ns(k) : 0;
  }
  return sum;
}

std::ptrdiff_t count_of(const proto::StepTrace& trace, proto::TraceKind kind) {
  return std::ranges::count(trace.kind(), kind);
}

TEST(StepTrace, CoversTheTracedStepsOfEveryReplica) {
  const auto traces = traced(1'000'000);

  for (const std::vector<proto::StepTrace>& replica : traces) {
    ASSERT_EQ(replica.size(), 2U);
    EXPECT_EQ(replica[0].step(), 2U);
    EXPECT_EQ(replica[1].step(), 3U);
    for (const proto::StepTrace& trace : replica) {
      EXPECT_EQ(count_of(trace, proto::TRACE_STEP), 1);
      EXPECT_GE(count_of(trace, proto::TRACE_COLLECTIVE), 1);
      EXPECT_GE(count_of(trace, proto::TRACE_HOST), 2);
      EXPECT_EQ(trace.left_out(), 0U);
      const std::uint64_t parts = sum_of(trace, {proto::TRACE_OPERATOR, proto::TRACE_COPY, proto::TRACE_COLLECTIVE,
                                                 proto::TRACE_HOST, proto::TRACE_SHARING});
      const std::uint64_t whole = sum_of(trace, {proto::TRACE_STEP});
      EXPECT_LE(parts, whole) << "these slices do not overlap";
      EXPECT_GE(count_of(trace, proto::TRACE_SHARING), 1) << "replicas meet before others read their new weights";
      EXPECT_EQ(trace.kind_size() - 1 - count_of(trace, proto::TRACE_SHARING),
                steps_in(program_of(job_of(1)), "train"));
      for (int k = 0; k < trace.kind_size(); ++k) {
        EXPECT_LE(trace.begin_ns(k) + trace.length_ns(k), whole);
        const bool meets = trace.kind(k) == proto::TRACE_COLLECTIVE || trace.kind(k) == proto::TRACE_SHARING;
        EXPECT_EQ(trace.group(k), meets ? 2U : 0U);
      }
    }
  }
  EXPECT_TRUE(std::ranges::equal(traces[0][0].number(), traces[1][0].number())) << "replicas run the same steps";
}

TEST(StepTrace, ShowsEveryMicroBatch) {
  const proto::StepTrace one = traced(1'000'000)[0][0];
  const proto::StepTrace three = traced(1'000'000, 3)[0][0];

  EXPECT_EQ(count_of(one, proto::TRACE_HOST) + 2, count_of(three, proto::TRACE_HOST)) << "two more batches";
}

TEST(StepTrace, JoinsOperatorsIfThereAreTooMany) {
  const proto::StepTrace all = traced(1'000'000)[0][0];
  const proto::StepTrace joined = traced(20)[0][0];

  EXPECT_EQ(count_of(joined, proto::TRACE_OPERATOR), 0);
  EXPECT_EQ(joined.left_out(), 0U);
  std::uint64_t operators = 0;
  for (int k = 0; k < joined.kind_size(); ++k) {
    operators += joined.kind(k) == proto::TRACE_OPERATORS ? joined.number(k) : 0;
  }
  EXPECT_EQ(operators, count_of(all, proto::TRACE_OPERATOR) + count_of(all, proto::TRACE_COPY));
  EXPECT_EQ(count_of(joined, proto::TRACE_COLLECTIVE), count_of(all, proto::TRACE_COLLECTIVE));
}

TEST(StepTrace, CountsWhatItLeavesOut) {
  const proto::StepTrace few = traced(3)[0][0];

  EXPECT_EQ(few.kind_size(), 3 + 1);
  EXPECT_EQ(few.kind(3), proto::TRACE_STEP);
  // The rest is counted step by step, except for the step itself and the calls, which are not shown if operators join.
  const proto::StepTrace all = traced(1'000'000)[0][0];
  const auto steps = static_cast<std::uint64_t>(all.kind_size() - 1 - count_of(all, proto::TRACE_CALL));
  std::uint64_t shown = 0;
  for (int k = 0; k < 3; ++k) {
    shown += few.kind(k) == proto::TRACE_OPERATORS ? few.number(k) : 1;
  }
  EXPECT_EQ(few.left_out(), steps - shown);
}

}  // namespace
}  // namespace poprun::step_trace_test
