#include "collectives/local/node_communicator.h"

#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun::collectives {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Returns the error of replica 1's allocation, for which replica 0 offers memory of a process that no longer exists.
template <typename Allocate>
Error error_of(CallKind kind, const Allocate& allocate) {
  constexpr std::chrono::seconds kDeadline{20};
  auto ours = NodeSegment::create(NodeSegment::Peers::kProcesses, 2);
  auto theirs = NodeSegment::open((*ours)->address(), (*ours)->nonce(), 2);
  std::thread dead([&] {
    Rendezvous creator({.memory = (*ours)->control(),
                        .numbers = {4, 5},
                        .among = {},
                        .self = 0,
                        .deadline = kDeadline,
                        .log = std::make_shared<CallLog>(),
                        .agree = {}});
    (void)creator.open({.kind = kind, .bytes = 8192}, {1'999'999'999, 3});
  });
  NodeCommunicator survivor(**theirs, {.self = 1, .process_leader = 1, .deadline = kDeadline, .numbers = {4, 5}});
  const auto allocated = allocate(survivor);
  dead.join();
  return allocated ? Error{} : allocated.error();
}

TEST(NodeCommunicator, MissesAReplicaThatEndedBeforeItsMemoryCouldBeOpened) {
  for (const Error& error :
       {error_of(CallKind::kAllocate, [](NodeCommunicator& survivor) { return survivor.allocate(Bytes{8192}); }),
        error_of(CallKind::kAllocateCommon,
                 [](NodeCommunicator& survivor) { return survivor.allocate_common(Bytes{8192}); })}) {
    EXPECT_EQ(error.code, ErrorCode::kInfrastructure) << "a consequence of the replica's end, not a cause";
    EXPECT_THAT(error.message, HasSubstr("1: replica 4 ended before its memory could be opened"));
    EXPECT_THAT(error.facts.missing, ElementsAre(4));
  }
}

}  // namespace
}  // namespace poprun::collectives
