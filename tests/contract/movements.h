#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/contract/sentence.h"

/// Requirements on all-gather, broadcast and allocated memory.
namespace poprun::contract {

inline void all_gather_concatenates(Communicator& world) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{600'001}}) {
    const std::vector<std::byte> mine(size, static_cast<std::byte>(self_of(world) + 1));
    std::vector<std::byte> all(size * world.size());

    ASSERT_TRUE(world.all_gather(mine, all));

    for (std::size_t r = 0; r < world.size() && size > 0; ++r) {
      const auto part = std::span(all).subspan(r * size, size);
      EXPECT_EQ(std::ranges::count(part, static_cast<std::byte>(r + 1)), static_cast<std::ptrdiff_t>(size));
    }
  }
}

inline void all_gather_works_in_place_on_allocated_memory(Communicator& world) {
  constexpr std::size_t kSize = 50'001;
  const auto memory = world.allocate(Bytes{static_cast<std::int64_t>(kSize * world.size())});
  ASSERT_TRUE(memory);
  const std::span<std::byte> mine = memory->subspan(self_of(world) * kSize, kSize);
  std::ranges::fill(mine, static_cast<std::byte>(self_of(world) + 1));

  ASSERT_TRUE(world.all_gather(mine, *memory));

  for (std::size_t r = 0; r < world.size(); ++r) {
    EXPECT_EQ(std::ranges::count(memory->subspan(r * kSize, kSize), static_cast<std::byte>(r + 1)),
              static_cast<std::ptrdiff_t>(kSize));
  }
}

inline void broadcast_comes_from_each_root(Communicator& world) {
  const auto memory = world.allocate(Bytes{5'000});
  ASSERT_TRUE(memory);
  std::vector<std::byte> elsewhere(17);
  for (std::size_t root = 0; root < world.size(); ++root) {
    for (const std::span<std::byte> data : {*memory, std::span(elsewhere)}) {
      std::ranges::fill(data, static_cast<std::byte>(100 + self_of(world)));

      ASSERT_TRUE(world.broadcast(data, static_cast<ReplicaId>(root)));

      EXPECT_EQ(std::ranges::count(data, static_cast<std::byte>(100 + root)), static_cast<std::ptrdiff_t>(data.size()));
    }
  }
}

inline void broadcast_takes_many_chunks(Communicator& world) {
  constexpr std::size_t kSize = 3'500'001;
  std::vector<std::byte> data(kSize);
  const std::size_t root = world.size() - 1;
  for (std::size_t i = 0; i < kSize && self_of(world) == root; ++i) {
    data[i] = static_cast<std::byte>(i % 251);
  }

  ASSERT_TRUE(world.broadcast(data, static_cast<ReplicaId>(root)));

  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kSize; ++i) {
    wrong += data[i] != static_cast<std::byte>(i % 251) ? 1U : 0U;
  }
  EXPECT_EQ(wrong, 0U);
}

inline void allocate_gives_zeroed_pages(Communicator& world) {
  const auto first = world.allocate(Bytes{100'000});
  const auto second = world.allocate(Bytes{1});
  ASSERT_TRUE(first && second);

  EXPECT_EQ(first->size(), 100'000U);
  EXPECT_EQ(second->size(), 1U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first->data()) % 4096, 0U);
  EXPECT_EQ(std::ranges::count(*first, std::byte{0}), 100'000);
}

// Memory of four second-generation IPUs. Sixteen such replicas need more memory than most machines have.
inline void allocate_is_sparse(Communicator& world) {
  const auto memory = world.allocate(Bytes{4LL * 940'572'672});
  ASSERT_TRUE(memory) << memory.error().message;
  const std::span<float> end = as_floats(*memory).last(33);
  std::ranges::fill(end, 1.0F);

  ASSERT_TRUE(all_reduce(world, Reduction::kSum, end));

  EXPECT_EQ(end[32], static_cast<float>(world.size()));
}

// Each replica of a host writes the part that it owns, and all of them then read the same bytes. There are two
// memories, because the second must not be that of the first.
inline void common_memory_is_one_image_for_the_replicas_of_a_host(Communicator& world) {
  constexpr std::size_t kSize = 100'000;
  const auto host = world.group(Group::host());
  ASSERT_TRUE(host) << host.error().message;
  for (const std::size_t factor : {1U, 3U}) {
    const auto memory = (*host)->allocate_common(Bytes{kSize});
    ASSERT_TRUE(memory) << memory.error().message;
    ASSERT_EQ(memory->image.size(), kSize);
    EXPECT_EQ(std::ranges::count(memory->image, std::byte{0}), static_cast<std::ptrdiff_t>(kSize));
    ASSERT_TRUE((*host)->barrier());
    const auto [begin, count] = owned_part(kSize, (*host)->size(), self_of(**host));
    std::ranges::fill(memory->writable.subspan(begin, count), static_cast<std::byte>(factor * (self_of(**host) + 1)));

    ASSERT_TRUE((*host)->barrier());

    for (std::size_t r = 0; r < (*host)->size(); ++r) {
      const auto [first, size] = owned_part(kSize, (*host)->size(), r);
      const auto part = memory->image.subspan(first, size);
      EXPECT_EQ(std::ranges::count(part, static_cast<std::byte>(factor * (r + 1))), static_cast<std::ptrdiff_t>(size));
    }
  }
}

inline void the_parts_of_all_owners_make_up_a_tensor(Communicator& world) {
  for (const std::size_t elements : {0U, 1U, 63U, 64U, 65U, 1'000U, 123'456U}) {
    std::size_t end = 0;
    for (std::size_t r = 0; r < world.size(); ++r) {
      const auto [begin, count] = owned_part(elements, world.size(), r);
      EXPECT_EQ(begin, end);
      EXPECT_TRUE(begin % 64 == 0 || begin == elements);
      end = begin + count;
    }
    EXPECT_EQ(end, elements);
  }
}

inline constexpr auto kMovements = std::to_array<Sentence>({
    {"AllGatherConcatenates", all_gather_concatenates},
    {"AllGatherWorksInPlaceOnAllocatedMemory", all_gather_works_in_place_on_allocated_memory},
    {"BroadcastComesFromEachRoot", broadcast_comes_from_each_root},
    {"BroadcastTakesManyChunks", broadcast_takes_many_chunks},
    {"AllocateGivesZeroedPages", allocate_gives_zeroed_pages},
    {"AllocateIsSparse", allocate_is_sparse},
    {"CommonMemoryIsOneImageForTheReplicasOfAHost", common_memory_is_one_image_for_the_replicas_of_a_host},
    {"ThePartsOfAllOwnersMakeUpATensor", the_parts_of_all_owners_make_up_a_tensor},
});

}  // namespace poprun::contract
