#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "tests/contract/sentence.h"
#include "tests/contract/values.h"

/// Requirements on background reductions.
namespace poprun::contract {

/// In allocated memory and elsewhere, around other calls, and twice on the same channel.
inline void reductions_in_the_background_give_the_same_bits(Communicator& world) {
  constexpr std::size_t kPlaced = 300'011;
  const auto memory = world.allocate(Bytes{kPlaced * 4});
  ASSERT_TRUE(memory);
  const std::span<float> placed = as_floats(*memory);
  for (const Reduction reduction : {Reduction::kMean, Reduction::kMax}) {
    std::vector<float> elsewhere(1'001);
    std::vector<float> beside(17);
    fill_rough(self_of(world), placed);
    fill_rough(self_of(world), elsewhere);
    fill_rough(self_of(world), beside);
    const std::array<Buffer, 2> last = {Buffer::of(placed.last(11)), Buffer::of(elsewhere)};
    const Buffer first = Buffer::of(placed.first(300'000));

    ASSERT_TRUE(world.begin_all_reduce(reduction, std::span(&first, 1)));
    ASSERT_TRUE(all_reduce(world, Reduction::kSum, beside));
    ASSERT_TRUE(world.begin_all_reduce(reduction, last));
    ASSERT_TRUE(world.barrier());
    const Status status = world.await_all_reduces();

    ASSERT_TRUE(status) << status.error().message;
    expect_rough_result(Reduction::kSum, world.size(), beside);
    expect_rough_result(reduction, world.size(), placed);
    expect_rough_result(reduction, world.size(), elsewhere);
    ASSERT_TRUE(world.barrier());
  }
}

inline void awaiting_what_was_never_begun_is_done_at_once(Communicator& world) {
  EXPECT_TRUE(world.await_all_reduces());
  EXPECT_TRUE(world.barrier());
}

inline constexpr auto kBackground = std::to_array<Sentence>({
    {"ReductionsInTheBackgroundGiveTheSameBits", reductions_in_the_background_give_the_same_bits},
    {"AwaitingWhatWasNeverBegunIsDoneAtOnce", awaiting_what_was_never_begun_is_done_at_once},
});

/// `await_all_reduces` reports to all replicas that one had a different size; the world still works.
inline void a_different_reduction_in_the_background_is_told_by_await(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  std::vector<float> data(self_of(world) == 0 ? 4 : 8);
  const Buffer buffer = Buffer::of(data);

  ASSERT_TRUE(world.begin_all_reduce(Reduction::kSum, std::span(&buffer, 1)));
  const Status status = world.await_all_reduces();

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBug) << status.error().message;
  EXPECT_NE(status.error().message.find("replica 0: all-reduce (sum) of 16 B"), std::string::npos)
      << status.error().message;
  EXPECT_FALSE(world.begin_all_reduce(Reduction::kSum, std::span(&buffer, 1)));
  EXPECT_TRUE(world.barrier());
}

inline constexpr auto kBackgroundFailures = std::to_array<Sentence>({
    {"ADifferentReductionInTheBackgroundIsToldByAwait", a_different_reduction_in_the_background_is_told_by_await},
});

}  // namespace poprun::contract
