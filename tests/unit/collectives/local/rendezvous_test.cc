#include "collectives/local/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "collectives/local/node_segment.h"

namespace poprun::collectives {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kDeadline = 1s;

/// The replicas 4, 5 and 6 of a job.
class RendezvousOfThree : public ::testing::Test {
 protected:
  void SetUp() override {
    auto memory = SharedMemory::create_for_threads(Rendezvous::bytes_needed(3));
    ASSERT_TRUE(memory);
    memory_ = std::move(*memory);
    Rendezvous::initialise(memory_.data(), 3);
  }

  [[nodiscard]] Rendezvous handle(std::size_t self, LastExcuse last_excuse = {}) const {
    return Rendezvous({.memory = memory_.data(),
                       .numbers = {4, 5, 6},
                       .among = " of replicas 4-6",
                       .self = self,
                       .deadline = kDeadline,
                       .last_excuse = std::move(last_excuse),
                       .log = std::make_shared<CallLog>(),
                       .agree = {}});
  }

  SharedMemory memory_;
};

TEST_F(RendezvousOfThree, NamesTheMissingAfterTheDeadlineHoweverPatient) {
  std::jthread other([this] { EXPECT_FALSE(handle(0).wait(10s)); });
  const Clock::time_point begin = Clock::now();

  const Status status = handle(1).wait(10s);

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "barrier 0 of replicas 4-6: replica 6 did not arrive within 1 s");
  EXPECT_LT(Clock::now() - begin, 5s);
}

TEST_F(RendezvousOfThree, WaitsLongerForWhoIsOnTheWay) {
  std::jthread other([this] { EXPECT_TRUE(handle(0).wait(10s)); });
  std::jthread late([this] {
    Rendezvous mine = handle(2);
    for (const auto end = Clock::now() + 2 * kDeadline; Clock::now() < end;) {
      mine.on_the_way();
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(mine.wait(10s));
  });

  EXPECT_TRUE(handle(1).wait(10s));
}

TEST_F(RendezvousOfThree, CountsTheDeadlineFromTheLastExcuse) {
  const Clock::time_point begin = Clock::now();
  const Clock::time_point end_of_excuse = begin + 3 * kDeadline / 2;
  const LastExcuse excuse = [&] { return std::min(Clock::now(), end_of_excuse); };
  std::jthread other([&] { EXPECT_FALSE(handle(0, excuse).wait()); });

  EXPECT_FALSE(handle(1, excuse).wait());

  EXPECT_GE(Clock::now(), end_of_excuse + kDeadline);
  EXPECT_LT(Clock::now(), end_of_excuse + 3 * kDeadline);
}

TEST_F(RendezvousOfThree, DoesNotNameWhoIsOnTheWayBesideWhoIsNot) {
  std::jthread late([this](const std::stop_token& stop) {
    Rendezvous mine = handle(2);
    while (!stop.stop_requested()) {
      mine.on_the_way();
      std::this_thread::sleep_for(1ms);
    }
  });

  const Status status = handle(1).wait(10s);

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "barrier 0 of replicas 4-6: replica 4 did not arrive within 1 s");
  EXPECT_EQ(status.error().facts.missing, std::vector<std::uint32_t>{4});
}

}  // namespace
}  // namespace poprun::collectives
