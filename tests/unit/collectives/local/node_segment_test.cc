#include "collectives/local/node_segment.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kThreads = NodeSegment::Peers::kThreads;
constexpr auto kProcesses = NodeSegment::Peers::kProcesses;

TEST(SharedMemory, IsTheSameThroughASecondMapping) {
  auto owner = SharedMemory::create_for_processes(Bytes{8'192});
  ASSERT_TRUE(owner);
  auto peer = SharedMemory::open(owner->address(), Bytes{8'192});
  ASSERT_TRUE(peer) << peer.error().message;

  owner->data()[5'000] = std::byte{7};

  EXPECT_EQ(peer->data()[5'000], std::byte{7});
  EXPECT_EQ(peer->data()[0], std::byte{0});
}

TEST(SharedMemory, AReadOnlyMappingShowsTheSameBytesAndCatchesStrayWrites) {
  auto owner = SharedMemory::create_for_processes(Bytes{8'192});
  ASSERT_TRUE(owner);
  auto image = owner->read_only();
  ASSERT_TRUE(image) << image.error().message;

  owner->data()[5'000] = std::byte{7};

  EXPECT_EQ(image->data()[5'000], std::byte{7});
  EXPECT_EXIT(image->data()[5'000] = std::byte{8}, ::testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EQ(owner->data()[5'000], std::byte{7});
}

TEST(SharedMemory, SaysWhichFileCouldNotBeOpenedAndWhatToDo) {
  const auto peer = SharedMemory::open({.process = 1'999'999'999, .descriptor = 3}, Bytes{4'096});

  ASSERT_FALSE(peer);
  EXPECT_EQ(peer.error().code, ErrorCode::kUnreachable);
  EXPECT_THAT(peer.error().message,
              AllOf(HasSubstr("/proc/1999999999/fd/3"), HasSubstr("4096 B"), HasSubstr("the same pid namespace")));
}

TEST(SharedMemory, RefusesAFileOfAnotherSize) {
  auto owner = SharedMemory::create_for_processes(Bytes{4'096});
  ASSERT_TRUE(owner);

  const auto peer = SharedMemory::open(owner->address(), Bytes{8'192});

  ASSERT_FALSE(peer);
  EXPECT_EQ(peer.error().code, ErrorCode::kUnreachable);
  EXPECT_THAT(peer.error().message, AllOf(HasSubstr("holds 4096 B"), HasSubstr("has 8192 B")));
}

TEST(SharedMemory, SaysHowMuchCouldNotBeMapped) {
  const auto memory = SharedMemory::create_for_threads(Bytes{std::int64_t{1} << 60});

  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, ErrorCode::kHostResources);
  EXPECT_THAT(memory.error().message, HasSubstr("cannot map 1152921504606846976 B"));
}

TEST(NodeSegment, OpensOnlyWithTheNonceOfItsCreator) {
  const auto owner = NodeSegment::create(kProcesses, 2);
  ASSERT_TRUE(owner);

  const auto peer = NodeSegment::open((*owner)->address(), (*owner)->nonce(), 2);
  const auto stranger = NodeSegment::open((*owner)->address(), (*owner)->nonce() + 1, 2);

  EXPECT_TRUE(peer);
  ASSERT_FALSE(stranger);
  EXPECT_EQ(stranger.error().code, ErrorCode::kUnreachable);
  EXPECT_THAT(stranger.error().message, HasSubstr("is not the peer"));
}

TEST(NodeSegment, CannotBeOpenedOnceItsFileIsClosed) {
  const auto owner = NodeSegment::create(kProcesses, 1);
  ASSERT_TRUE(owner);
  const FileAddress address = (*owner)->address();

  (*owner)->close_files();

  EXPECT_FALSE(NodeSegment::open(address, (*owner)->nonce(), 1));
}

//  region 0; 3 replicas with 5000 B each:   |0 .. 5000 .. 8192|8192 .. 13192 ..|16384 ..
TEST(NodeSegment, FindsBytesWhollyInsideOneReplicasPart) {
  const auto segment = NodeSegment::create(kThreads, 3);
  ASSERT_TRUE(segment);
  const Bytes size{5'000};
  auto memory = SharedMemory::create_for_threads(*(*segment)->region_size(size));
  ASSERT_TRUE(memory);
  (*segment)->add_region(std::move(*memory), size);
  const std::byte* base = (*segment)->at({0, 0}, 0);

  EXPECT_EQ((*segment)->at({0, 16}, 2), base + 16'400);
  EXPECT_EQ((*segment)->find(1, {base + 8'192, 5'000}), (Place{0, 0}));
  EXPECT_EQ((*segment)->find(1, {base + 8'292, 4'900}), (Place{0, 100}));
  EXPECT_EQ((*segment)->find(1, {base + 8'292, 4'901}), Place{});
  EXPECT_EQ((*segment)->find(1, {base, 5'000}), Place{});
}

// Region 0 is for 4 replicas. Replicas 1 and 3 form a group, whose rooms are in region 1.
TEST(NodeSegment, OfAGroupFindsWhatLiesInRegionsOfAll) {
  const auto segment = NodeSegment::create(kThreads, 4);
  ASSERT_TRUE(segment);
  for (const Bytes size : {Bytes{5'000}, NodeSegment::room_bytes(4, Bytes{0})}) {
    auto memory = SharedMemory::create_for_threads(*(*segment)->region_size(size));
    ASSERT_TRUE(memory);
    (*segment)->add_region(std::move(*memory), size);
  }
  NodeSegment& group = (*segment)->group(1, {1, 3});
  auto own = SharedMemory::create_for_threads(*group.region_size(Bytes{100}));
  ASSERT_TRUE(own);
  group.add_region(std::move(*own), Bytes{100});

  EXPECT_EQ(&(*segment)->group(1, {1, 3}), &group);
  EXPECT_EQ(group.replicas(), 2U);
  EXPECT_EQ(group.control(), (*segment)->at({1, 0}, 1));
  std::byte* const of_all = (*segment)->at({0, 16}, 3);
  const Place place = group.find(1, {of_all, 10});
  EXPECT_EQ(group.at(place, 1), of_all);
  EXPECT_EQ(group.at(place, 0), (*segment)->at({0, 16}, 1));
  EXPECT_EQ(group.find(0, {of_all, 10}), Place{});
  EXPECT_EQ(group.find(1, {group.at({0, 8}, 1), 92}), (Place{0, 8}));
  EXPECT_EQ((*segment)->find(3, {group.at({0, 8}, 1), 92}), Place{});
}

TEST(NodeSegment, RefusesRegionsThatNoAddressSpaceHolds) {
  const auto segment = NodeSegment::create(kThreads, 16);
  ASSERT_TRUE(segment);

  const auto size = (*segment)->region_size(Bytes{std::int64_t{1} << 60});

  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().code, ErrorCode::kHostResources);
  EXPECT_THAT(size.error().message, HasSubstr("16 replicas"));
}

}  // namespace
}  // namespace poprun::collectives
