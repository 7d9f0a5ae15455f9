#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/contract/sentence.h"
#include "tests/contract/values.h"

/// Requirements on groups of replicas, in addition to those on every communicator.
namespace poprun::contract {

/// Returns all ways to split the replicas into equal groups.
inline std::vector<Group> all_splits(std::size_t replicas) {
  std::vector<Group> splits = {Group::all()};
  for (std::size_t size = 1; size <= replicas; ++size) {
    if (replicas % size == 0) {
      splits.push_back(Group::consecutive(size));
      splits.push_back(Group::orthogonal(size));
    }
  }
  return splits;
}

/// Returns one split of each kind; for 16 replicas: all, pairs, and groups of eight with stride 2.
inline std::vector<Group> some_splits(std::size_t replicas) {
  std::size_t factor = 2;
  while (factor < replicas && replicas % factor != 0) {
    ++factor;
  }
  factor = std::min(factor, replicas);
  return {Group::all(), Group::consecutive(factor), Group::orthogonal(replicas / factor)};
}

/// Returns the group of replica `self`, by definition: all replicas in the same group.
inline std::vector<std::size_t> members_of(Group group, std::size_t replicas, std::size_t self) {
  std::vector<std::size_t> members;
  for (std::size_t r = 0; r < replicas; ++r) {
    const bool together =
        group.kind == Group::Kind::kAll ||
        (group.kind == Group::Kind::kConsecutive && r / group.size == self / group.size) ||
        (group.kind == Group::Kind::kOrthogonal && r % (replicas / group.size) == self % (replicas / group.size));
    if (together) {
      members.push_back(r);
    }
  }
  return members;
}

inline void expect_sum_over(std::span<const std::size_t> members, std::span<const float> data) {
  const std::size_t stride = 1 + data.size() / 100;
  for (std::size_t i = 0; i < data.size(); i += stride) {
    std::vector<float> values;
    for (const std::size_t member : members) {
      values.push_back(rough_value(member, i));
    }
    ASSERT_EQ(std::bit_cast<std::uint32_t>(data[i]), std::bit_cast<std::uint32_t>(tree_sum(values)))
        << "element " << i << " of " << data.size();
  }
}

/// Returns the members of a channel, in its order, found by its own all-gather.
inline std::vector<std::size_t> gathered_numbers(Communicator& channel, std::size_t number) {
  std::vector<std::size_t> numbers(channel.size());
  EXPECT_TRUE(channel.all_gather(std::as_bytes(std::span(&number, 1)), std::as_writable_bytes(std::span(numbers))));
  return numbers;
}

/// Runs a sentence about one channel in a consecutive and an orthogonal group.
inline void in_some_groups(Communicator& world, const Sentence& sentence) {
  for (const Group split : some_splits(world.size())) {
    if (split.kind == Group::Kind::kAll) {
      continue;
    }
    const auto group = world.group(split);
    ASSERT_TRUE(group) << group.error().message;
    sentence.check(**group);
  }
}

inline void groups_have_the_members_of_their_kind(Communicator& world) {
  for (const Group split : all_splits(world.size())) {
    const std::vector<std::size_t> expected = members_of(split, world.size(), self_of(world));

    const auto group = world.group(split);

    ASSERT_TRUE(group) << group.error().message;
    EXPECT_EQ((*group)->size(), expected.size());
    EXPECT_EQ(expected[self_of(**group)], self_of(world));
    EXPECT_EQ(gathered_numbers(**group, self_of(world)), expected);
  }
}

// In the engine, arenas come from the world, and the Program names the group in which gradients are summed.
inline void groups_exchange_the_worlds_memory(Communicator& world) {
  const auto memory = world.allocate(Bytes{250'000});
  ASSERT_TRUE(memory);
  const std::span<float> data = as_floats(*memory).subspan(7, 60'011);
  for (const Group split : all_splits(world.size())) {
    const auto group = world.group(split);
    ASSERT_TRUE(group);
    fill_rough(self_of(world), data);

    ASSERT_TRUE(all_reduce(**group, Reduction::kSum, data));

    expect_sum_over(members_of(split, world.size(), self_of(world)), data);
  }
}

// The first group finishes before the others begin.
inline void groups_run_independently(Communicator& world) {
  for (const Group split : some_splits(world.size())) {
    const auto group = world.group(split);
    ASSERT_TRUE(group);
    const std::vector<std::size_t> members = members_of(split, world.size(), self_of(world));
    const auto work = [&] {
      for (int i = 0; i < 10; ++i) {
        std::vector<float> data(100);
        fill_rough(self_of(world), data);
        ASSERT_TRUE(all_reduce(**group, Reduction::kSum, data));
        expect_sum_over(members, data);
      }
    };
    const bool first = members.front() == 0;
    if (first) {
      work();
    }
    ASSERT_TRUE(world.barrier());
    if (!first) {
      work();
    }
  }
}

// One thread for each of three channels, like gradient buckets that travel during a step.
inline void channels_run_on_threads_of_their_own(Communicator& world) {
  constexpr std::size_t kSize = 3'001;
  const auto memory = world.allocate(Bytes{3 * kSize * sizeof(float)});
  ASSERT_TRUE(memory);
  const Group split = some_splits(world.size())[2];
  const auto second = world.group(Group::all());
  const auto third = world.group(split);
  ASSERT_TRUE(second && third);
  const auto work = [&](Communicator& channel, Group members, std::size_t part, int calls) {
    const std::span<float> data = as_floats(*memory).subspan(part * kSize, kSize);
    for (int i = 0; i < calls; ++i) {
      fill_rough(self_of(world), data);
      ASSERT_TRUE(all_reduce(channel, Reduction::kSum, data));
      expect_sum_over(members_of(members, world.size(), self_of(world)), data);
    }
  };

  std::jthread beside([&] { work(**second, Group::all(), 1, 60); });
  std::jthread third_beside([&] { work(**third, split, 2, 40); });
  work(world, Group::all(), 0, 50);
}

inline void allocating_beside_a_running_channel_harms_nothing(Communicator& world) {
  const auto memory = world.allocate(Bytes{4'096});
  const auto second = world.group(Group::all());
  ASSERT_TRUE(memory && second);

  std::jthread beside([&] {
    for (int i = 0; i < 50; ++i) {
      std::span<float> data = as_floats(*memory);
      fill_rough(self_of(world), data);
      ASSERT_TRUE(all_reduce(**second, Reduction::kSum, data));
      expect_sum_over(members_of(Group::all(), world.size(), self_of(world)), data);
    }
  });
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(world.allocate(Bytes{100}));
  }
}

// For 12 replicas: {0 .. 5} and {6 .. 11}, then every second replica of each.
inline void groups_are_split_into_groups(Communicator& world) {
  const std::size_t n = world.size();
  const Group half = n % 2 == 0 ? Group::consecutive(n / 2) : Group::all();
  const auto group = world.group(half);
  ASSERT_TRUE(group);
  const std::vector<std::size_t> members = members_of(half, n, self_of(world));
  const auto memory = (*group)->allocate(Bytes{4'000});
  ASSERT_TRUE(memory);
  for (const Group split : all_splits(members.size())) {
    std::vector<std::size_t> expected;
    for (const std::size_t index : members_of(split, members.size(), self_of(**group))) {
      expected.push_back(members[index]);
    }

    const auto part = (*group)->group(split);

    ASSERT_TRUE(part) << part.error().message;
    EXPECT_EQ(gathered_numbers(**part, self_of(world)), expected);
    const std::span<float> data = as_floats(*memory);
    fill_rough(self_of(world), data);
    ASSERT_TRUE(all_reduce(**part, Reduction::kSum, data));
    expect_sum_over(expected, data);
  }
}

inline void sizes_that_do_not_divide_are_refused_without_harm(Communicator& world) {
  const std::size_t size = world.size() + 1;

  const auto group = world.group(Group::consecutive(size));
  const auto none = world.group(Group::orthogonal(0));

  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, ErrorCode::kUsage);
  EXPECT_THAT(group.error().message,
              testing::StartsWith("groups of " + std::to_string(size) + " replicas cannot be formed from " +
                                  std::to_string(world.size()) + " replicas; possible sizes are 1"));
  EXPECT_FALSE(none);
  EXPECT_TRUE(world.barrier());
}

inline constexpr auto kGroups = std::to_array<Sentence>({
    {"GroupsHaveTheMembersOfTheirKind", groups_have_the_members_of_their_kind},
    {"GroupsExchangeTheWorldsMemory", groups_exchange_the_worlds_memory},
    {"GroupsRunIndependently", groups_run_independently},
    {"ChannelsRunOnThreadsOfTheirOwn", channels_run_on_threads_of_their_own},
    {"AllocatingBesideARunningChannelHarmsNothing", allocating_beside_a_running_channel_harms_nothing},
    {"GroupsAreSplitIntoGroups", groups_are_split_into_groups},
    {"SizesThatDoNotDivideAreRefusedWithoutHarm", sizes_that_do_not_divide_are_refused_without_harm},
});

inline std::string list_of(std::span<const std::size_t> numbers) {
  std::string text = std::to_string(numbers[0]);
  for (const std::size_t number : numbers.subspan(1)) {
    text += ", " + std::to_string(number);
  }
  return text;
}

// Members have stride 2 or more, so that no range shortens the list.
inline void the_missing_replica_of_a_group_is_named(Communicator& world) {
  const std::size_t n = world.size();
  if (n % 2 != 0 || n < 4) {
    return;
  }
  const auto group = world.group(Group::orthogonal(n / 2));
  ASSERT_TRUE(group);
  const std::vector<std::size_t> members = members_of(Group::orthogonal(n / 2), n, self_of(world));
  if (self_of(world) == members.back()) {
    return;
  }

  const Status status = (*group)->barrier();

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInfrastructure);
  EXPECT_THAT(status.error().message, testing::StartsWith("barrier 1 of replicas " + list_of(members) + ": replica " +
                                                          std::to_string(members.back()) + " did not arrive within "));
}

inline void a_failure_of_a_group_leaves_the_world_as_it_is(Communicator& world) {
  const std::size_t n = world.size();
  if (n % 2 != 0 || n < 4) {
    return;
  }
  const auto group = world.group(Group::orthogonal(n / 2));
  ASSERT_TRUE(group);
  const std::vector<std::size_t> members = members_of(Group::orthogonal(n / 2), n, self_of(world));
  std::vector<std::byte> data(3);

  // Replica numbers are those of the job, also for the root.
  const Status status = self_of(world) == members.front()
                            ? (*group)->barrier()
                            : (*group)->broadcast(data, static_cast<ReplicaId>(n / 2 - 1));

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBug);
  EXPECT_THAT(status.error().message,
              testing::AllOf(testing::StartsWith("call 1 of replicas " + list_of(members) + " differs"),
                             testing::HasSubstr("replica " + std::to_string(members.front()) + ": barrier"),
                             testing::HasSubstr(": broadcast of 3 B from replica " + std::to_string(members.back()))));
  EXPECT_FALSE((*group)->barrier());
  EXPECT_TRUE(world.barrier());
}

// If buffers were copied, their positions would not matter.
inline void groups_exchange_the_worlds_memory_in_place(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  const auto memory = world.allocate(Bytes{4'096});
  const auto group = world.group(Group::all());
  ASSERT_TRUE(memory && group);
  std::span<float> data = as_floats(*memory).subspan(self_of(world) == 0 ? 16 : 32, 16);

  const Status status = all_reduce(**group, Reduction::kSum, data);

  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, testing::HasSubstr("positions of its buffers"));
}

// A failure in a group must be visible from the world.
inline void recent_calls_name_those_of_groups(Communicator& world) {
  const std::size_t n = world.size();
  if (n % 2 != 0 || n < 4) {
    return;
  }
  const auto group = world.group(Group::orthogonal(n / 2));
  ASSERT_TRUE(group);
  const std::vector<std::size_t> members = members_of(Group::orthogonal(n / 2), n, self_of(world));
  std::vector<float> data(10);
  const Buffer buffer{ElementType::kF32, std::as_writable_bytes(std::span(data)), "fc1.weight"};
  ASSERT_TRUE((*group)->all_reduce(Reduction::kMean, std::span(&buffer, 1)));
  if (self_of(world) == members.back()) {
    return;
  }
  ASSERT_FALSE((*group)->barrier());

  const std::vector<std::string> calls = world.recent_calls();

  ASSERT_GE(calls.size(), 3U);
  EXPECT_THAT(calls.back(), testing::AllOf(testing::HasSubstr(" of replicas " + list_of(members) + ": barrier"),
                                           testing::EndsWith("not done")));
  EXPECT_THAT(calls[calls.size() - 2], testing::AllOf(testing::HasSubstr(" of replicas " + list_of(members) +
                                                                         ": all-reduce (mean) of 40 B ('fc1.weight'), "
                                                                         "begun "),
                                                      testing::HasSubstr(" ago, took "), testing::EndsWith(" ms")));
  EXPECT_EQ((*group)->recent_calls().size(), calls.size());
}

inline void different_groups_fail_on_all_replicas(Communicator& world) {
  if (world.size() == 1) {
    return;
  }

  const auto group = world.group(self_of(world) == 0 ? Group::all() : Group::consecutive(world.size()));

  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, ErrorCode::kBug);
  EXPECT_THAT(group.error().message,
              testing::AllOf(testing::HasSubstr("replica 0: group (all)"),
                             testing::HasSubstr(": group (consecutive of " + std::to_string(world.size()) + ")")));
}

inline constexpr auto kGroupFailures = std::to_array<Sentence>({
    {"TheMissingReplicaOfAGroupIsNamed", the_missing_replica_of_a_group_is_named},
    {"AFailureOfAGroupLeavesTheWorldAsItIs", a_failure_of_a_group_leaves_the_world_as_it_is},
    {"GroupsExchangeTheWorldsMemoryInPlace", groups_exchange_the_worlds_memory_in_place},
    {"DifferentGroupsFailOnAllReplicas", different_groups_fail_on_all_replicas},
    {"RecentCallsNameThoseOfGroups", recent_calls_name_those_of_groups},
});

}  // namespace poprun::contract
