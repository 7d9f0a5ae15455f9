#include "collectives/local/call_log.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun::collectives {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

constexpr Call kBarrierCall{.kind = CallKind::kBarrier};

TEST(CallLog, SaysWhatWasDoneAndWhatWasNot) {
  CallLog log;
  EXPECT_THAT(log.lines(CallLog::Clock::now()), IsEmpty());
  Call reduce{.kind = CallKind::kAllReduce, .reduction = Reduction::kMean, .bytes = 40};
  reduce.add_name("conv1.bias");
  log.done(log.begin(16, reduce, ""));
  log.begin(3, kBarrierCall, " of replicas 0, 4");

  EXPECT_THAT(log.lines(CallLog::Clock::now() + 2s),
              ElementsAre(MatchesRegex("call 16: all-reduce .mean. of 40 B .'conv1.bias'., begun 2\\.[0-9]+ s "
                                       "ago, took 0\\.[0-9]+ ms"),
                          MatchesRegex("call 3 of replicas 0, 4: barrier, begun 2\\.[0-9]+ s ago, not done")));
}

TEST(CallLog, KeepsTheLastEight) {
  CallLog log;
  for (std::uint64_t sequence = 1; sequence <= 21; ++sequence) {
    log.done(log.begin(sequence, kBarrierCall, ""));
  }
  const auto lines = log.lines(CallLog::Clock::now());
  ASSERT_EQ(lines.size(), 8U);
  EXPECT_THAT(lines.front(), StartsWith("call 14: barrier"));
  EXPECT_THAT(lines.back(), StartsWith("call 21: barrier"));
}

// One channel makes a slow call while other channels make many calls.
TEST(CallLog, ForgetsACallThatEndsAfterEightOthersBegan) {
  CallLog log;
  const std::uint64_t slow = log.begin(1, kBarrierCall, " of replicas 0, 2");
  for (std::uint64_t sequence = 1; sequence <= 8; ++sequence) {
    log.begin(sequence, kBarrierCall, "");
  }
  log.done(slow);
  for (const std::string& line : log.lines(CallLog::Clock::now())) {
    EXPECT_THAT(line, ::testing::EndsWith("not done"));
  }
}

TEST(CallLog, TakesBackThatACallIsDone) {
  CallLog log;
  const std::uint64_t number = log.begin(1, kBarrierCall, "");
  log.done(number);
  log.broken(number);
  EXPECT_THAT(log.lines(CallLog::Clock::now()), ElementsAre(::testing::EndsWith("not done")));
}

}  // namespace
}  // namespace poprun::collectives
