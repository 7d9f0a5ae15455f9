#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/base/half.h"
#include "tests/contract/sentence.h"
#include "tests/contract/values.h"

/// Requirements on all-reduce and reduce-scatter.
namespace poprun::contract {

// Odd sizes, smaller and larger than the number of replicas, a cache line, a mailbox, and any transport's chunk.
inline constexpr std::array<std::size_t, 8> kSizes = {0, 1, 2, 17, 1'000, 4'096, 4'097, 30'011};
inline constexpr std::size_t kMoreThanAChunk = 600'011;
inline void all_reduce_sums_over_replicas(Communicator& world) {
  const auto self = static_cast<float>(self_of(world));
  const auto n = static_cast<float>(world.size());
  std::vector<float> data = {self, 1.0F, -self};

  const Status status = all_reduce(world, Reduction::kSum, data);

  const float sum_of_indices = n * (n - 1) / 2;
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(data, (std::vector<float>{sum_of_indices, n, -sum_of_indices}));
}

inline void all_reduce_takes_the_largest(Communicator& world) {
  const auto self = static_cast<float>(self_of(world));
  const auto last = static_cast<float>(world.size() - 1);
  std::vector<float> data = {self, -self, -1.0F - self, -7.5F};

  const Status status = all_reduce(world, Reduction::kMax, data);

  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(data, (std::vector<float>{last, 0.0F, -1.0F, -7.5F}));
}

// Computed by hand. From 2^24 on, float32 cannot represent odd numbers.
//   3 replicas   (0.1 + 2^24) - (2^24 - 1)  =  2^24 - (2^24 - 1)  =  1, not 1.1
//   7 replicas   ((2^24 + 1.5) + (0.75 - 3)) + ((1.1 + 2.2) - (2^24 - 3))  =  6; from left to
//                right it would be 5, and a product with 1/7 for the mean would end in 70
inline void all_reduce_follows_the_canonical_tree_of_known_values(Communicator& world) {
  const std::vector<float> three = {0x1.99999ap-4F, 0x1p+24F, -0x1.fffffep+23F};
  const std::vector<float> seven = {0x1p+24F,       0x1.8p+0F,      0x1.8p-1F,       -0x1.8p+1F,
                                    0x1.19999ap+0F, 0x1.19999ap+1F, -0x1.fffffap+23F};
  const bool is_seven = world.size() == 7;
  if (world.size() != 3 && !is_seven) {
    return;
  }
  std::vector<float> sum = {(is_seven ? seven : three)[self_of(world)]};
  std::vector<float> mean = sum;

  ASSERT_TRUE(all_reduce(world, Reduction::kSum, sum));
  ASSERT_TRUE(all_reduce(world, Reduction::kMean, mean));

  EXPECT_EQ(sum[0], is_seven ? 0x1.8p+2F : 0x1p+0F);
  EXPECT_EQ(mean[0], is_seven ? 0x1.b6db6ep-1F : 0x1.555556p-2F);
}

inline void all_reduce_gives_the_bits_of_the_canonical_tree(Communicator& world) {
  for (const Reduction reduction : {Reduction::kSum, Reduction::kMean, Reduction::kMax}) {
    for (const std::size_t size : kSizes) {
      std::vector<float> data(size);
      fill_rough(self_of(world), data);

      ASSERT_TRUE(all_reduce(world, reduction, data));

      expect_rough_result(reduction, world.size(), data);
    }
  }
}

inline void all_reduce_takes_many_chunks(Communicator& world) {
  std::vector<float> data(kMoreThanAChunk);
  fill_rough(self_of(world), data);

  ASSERT_TRUE(all_reduce(world, Reduction::kMean, data));

  expect_rough_result(Reduction::kMean, world.size(), data);
}

inline void all_reduce_works_in_place_on_allocated_memory(Communicator& world) {
  for (const std::size_t size : kSizes) {
    const auto memory = world.allocate(Bytes{static_cast<std::int64_t>(size * sizeof(float))});
    ASSERT_TRUE(memory) << memory.error().message;
    const std::span<float> data = as_floats(*memory);
    ASSERT_EQ(data.size(), size);
    for (const Reduction reduction : {Reduction::kSum, Reduction::kMean, Reduction::kMax}) {
      fill_rough(self_of(world), data);

      ASSERT_TRUE(all_reduce(world, reduction, data));

      expect_rough_result(reduction, world.size(), data);
    }
  }
}

// One region:  | 5 | gap | 40,000 | gap | 1 | empty |   and between them a buffer in other memory.
// The gaps stay unchanged.
inline void all_reduce_takes_buffers_of_all_kinds_together(Communicator& world) {
  const auto memory = world.allocate(Bytes{400'000});
  ASSERT_TRUE(memory);
  const std::span<float> region = as_floats(*memory);
  std::ranges::fill(region, -1.0F);
  std::vector<float> elsewhere(777);
  const std::array<std::span<float>, 5> buffers = {region.subspan(3, 5), region.subspan(100, 40'000), elsewhere,
                                                   region.subspan(50'000, 1), region.subspan(60'000, 0)};
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    fill_rough(self_of(world), buffers[b], 1'000'000 * b);
  }

  const Status status = all_reduce(world, Reduction::kSum, buffers);

  ASSERT_TRUE(status) << status.error().message;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    expect_rough_result(Reduction::kSum, world.size(), buffers[b], 1'000'000 * b);
  }
  EXPECT_EQ(std::ranges::count(region, -1.0F), static_cast<std::ptrdiff_t>(region.size() - 5 - 40'000 - 1));
}

/// Reduces values of one type in allocated memory and elsewhere, whole and to the owners, and compares every replica's
/// own elements. Large buffers lie next to each other in one call.
inline void reduce_to_owners_gives_each_replica_its_part_of_an_all_reduce(Communicator& world) {
  for (const ElementType type : {ElementType::kF32, ElementType::kF16, ElementType::kI32}) {
    for (const std::size_t size : kSizes) {
      const auto memory = world.allocate(Bytes{static_cast<std::int64_t>(3 * size * size_of(type))});
      ASSERT_TRUE(memory) << memory.error().message;
      const std::span<std::byte> whole = memory->first(size * size_of(type));
      const std::span<std::byte> owned = memory->last(size * size_of(type));
      const std::span<std::byte> by_one = memory->subspan(whole.size(), whole.size());
      std::vector<std::byte> elsewhere(owned.size());
      for (std::size_t i = 0; i < size; ++i) {
        const float value = rough_value(self_of(world), i);
        if (type == ElementType::kF16) {
          const Half half = to_half(value);
          std::memcpy(&owned[i * sizeof(half)], &half, sizeof(half));
        } else {
          std::memcpy(&owned[i * sizeof(value)], &value, sizeof(value));
        }
      }
      std::ranges::copy(owned, whole.begin());
      std::ranges::copy(owned, elsewhere.begin());
      std::ranges::copy(owned, by_one.begin());
      const auto owner = static_cast<std::uint32_t>(2 * world.size() - 1);  // The second round is dealt backwards.
      const Buffer all{type, whole, "whole"};
      const std::array<Buffer, 3> parts = {
          {{type, owned, "owned"}, {type, elsewhere, "elsewhere"}, {type, by_one, "by one", owner}}};

      ASSERT_TRUE(world.all_reduce(Reduction::kSum, std::span(&all, 1)));
      ASSERT_TRUE(world.reduce_to_owners(Reduction::kSum, parts));

      const auto [begin, count] = owned_part(size, world.size(), self_of(world));
      const auto mine = [&](std::span<const std::byte> bytes) {
        return bytes.subspan(begin * size_of(type), count * size_of(type));
      };
      EXPECT_TRUE(std::ranges::equal(mine(owned), mine(whole))) << size;
      EXPECT_TRUE(std::ranges::equal(mine(elsewhere), mine(whole))) << size;
      if (self_of(world) == std::min<std::size_t>(1, world.size() - 1)) {
        EXPECT_TRUE(std::ranges::equal(by_one, whole)) << size;
      }
    }
  }
}

/// Sizes of a replica's shard, in elements.
inline constexpr std::array<std::size_t, 4> kShards = {0, 1, 33, 40'000};

inline void reduce_scatter_gives_each_replica_its_slice(Communicator& world) {
  for (const std::size_t size : kShards) {
    std::vector<float> data(size * world.size());
    fill_rough(self_of(world), data);
    const std::vector<float> before = data;
    std::vector<float> shard(size);

    ASSERT_TRUE(reduce_scatter(world, Reduction::kMean, data, shard));

    expect_rough_result(Reduction::kMean, world.size(), shard, self_of(world) * size);
    EXPECT_EQ(data, before);
  }
}

inline void reduce_scatter_reads_allocated_memory(Communicator& world) {
  for (const std::size_t size : kShards) {
    const auto bytes = static_cast<std::int64_t>(size * world.size() * sizeof(float));
    const auto memory = world.allocate(Bytes{bytes});
    ASSERT_TRUE(memory);
    const std::span<float> data = as_floats(*memory);
    fill_rough(self_of(world), data);
    const std::span<float> shard = data.subspan(self_of(world) * size, size);

    ASSERT_TRUE(reduce_scatter(world, Reduction::kSum, data, shard));

    expect_rough_result(Reduction::kSum, world.size(), shard, self_of(world) * size);
  }
}
inline void all_reduce_takes_every_type(Communicator& world) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{37}, std::size_t{20'011}}) {
    const auto memory = world.allocate(Bytes{static_cast<std::int64_t>(size * 4)});
    ASSERT_TRUE(memory);
    std::vector<std::byte> elsewhere(size * 4);
    for (const TypedValues& values : kTypedValues) {
      for (const Reduction reduction : reductions_of(values.type)) {
        for (const std::span<std::byte> bytes : {*memory, std::span(elsewhere)}) {
          const Buffer buffer{values.type, bytes.first(size * size_of(values.type))};
          fill_typed(values, self_of(world), buffer.bytes);

          ASSERT_TRUE(world.all_reduce(reduction, std::span(&buffer, 1)));

          expect_typed_result(values, reduction, world.size(), buffer.bytes);
        }
      }
    }
  }
}

// Odd counts of halves before floats, in allocated memory and outside it, larger than a chunk.
inline void all_reduce_takes_buffers_of_all_types_together(Communicator& world) {
  constexpr std::array<std::size_t, 6> kCounts = {5, 300'001, 3, 1, 250'003, 77};
  const auto memory = world.allocate(Bytes{4'000'000});
  ASSERT_TRUE(memory);
  std::vector<std::byte> outside(4'000'000);
  std::vector<Buffer> buffers;
  std::size_t at = 0;
  for (std::size_t b = 0; b < kCounts.size(); ++b) {
    const ElementType type = kTypedValues[(b + 1) % 3].type;
    const std::size_t size = kCounts[b] * size_of(type);
    for (const std::span<std::byte> bytes : {*memory, std::span(outside)}) {
      buffers.push_back({type, bytes.subspan(at, size)});
    }
    at = (at + size + 3) / 4 * 4;
  }
  const auto values_of = [](ElementType type) -> const TypedValues& {
    return *std::ranges::find(kTypedValues, type, &TypedValues::type);
  };
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    fill_typed(values_of(buffers[b].type), self_of(world), buffers[b].bytes, 1'000'000 * b);
  }

  ASSERT_TRUE(world.all_reduce(Reduction::kSum, buffers));

  for (std::size_t b = 0; b < buffers.size(); ++b) {
    expect_typed_result(values_of(buffers[b].type), Reduction::kSum, world.size(), buffers[b].bytes, 1'000'000 * b);
  }
}

inline void reduce_scatter_takes_every_type(Communicator& world) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{33}, std::size_t{2'003}}) {
    for (const TypedValues& values : kTypedValues) {
      const std::size_t bytes = size * size_of(values.type);
      const auto memory = world.allocate(Bytes{static_cast<std::int64_t>(bytes * world.size())});
      ASSERT_TRUE(memory);
      std::vector<std::byte> elsewhere(bytes * world.size());
      std::vector<std::byte> shard(bytes);
      for (const Reduction reduction : reductions_of(values.type)) {
        for (const std::span<std::byte> data : {*memory, std::span(elsewhere)}) {
          fill_typed(values, self_of(world), data);

          ASSERT_TRUE(world.reduce_scatter(reduction, values.type, data, shard));

          expect_typed_result(values, reduction, world.size(), shard, self_of(world) * size);
        }
      }
    }
  }
}

inline void mean_of_integers_is_refused_without_harm(Communicator& world) {
  std::vector<std::byte> data(4 * world.size());
  const Buffer buffer{ElementType::kI32, data};

  const Status reduced = world.all_reduce(Reduction::kMean, std::span(&buffer, 1));
  const Status scattered = world.reduce_scatter(Reduction::kMean, ElementType::kI32, data, std::span(data).first(4));
  const Status begun = world.begin_all_reduce(Reduction::kMean, std::span(&buffer, 1));

  ASSERT_FALSE(reduced);
  EXPECT_EQ(reduced.error().code, ErrorCode::kBug);
  EXPECT_THAT(reduced.error().message, testing::HasSubstr("integers cannot be averaged"));
  EXPECT_FALSE(scattered);
  EXPECT_FALSE(begun);
  EXPECT_TRUE(world.begin_all_reduce(Reduction::kSum, std::span(&buffer, 1)));
  EXPECT_TRUE(world.await_all_reduces());
  EXPECT_TRUE(world.barrier());
}

inline constexpr auto kReductions = std::to_array<Sentence>({
    {"AllReduceSumsOverReplicas", all_reduce_sums_over_replicas},
    {"AllReduceTakesTheLargest", all_reduce_takes_the_largest},
    {"AllReduceFollowsTheCanonicalTreeOfKnownValues", all_reduce_follows_the_canonical_tree_of_known_values},
    {"AllReduceGivesTheBitsOfTheCanonicalTree", all_reduce_gives_the_bits_of_the_canonical_tree},
    {"AllReduceTakesManyChunks", all_reduce_takes_many_chunks},
    {"AllReduceWorksInPlaceOnAllocatedMemory", all_reduce_works_in_place_on_allocated_memory},
    {"AllReduceTakesBuffersOfAllKindsTogether", all_reduce_takes_buffers_of_all_kinds_together},
    {"ReduceScatterGivesEachReplicaItsSlice", reduce_scatter_gives_each_replica_its_slice},
    {"ReduceScatterReadsAllocatedMemory", reduce_scatter_reads_allocated_memory},
    {"AllReduceTakesEveryType", all_reduce_takes_every_type},
    {"ReduceToOwnersGivesEachReplicaItsPartOfAnAllReduce",
     reduce_to_owners_gives_each_replica_its_part_of_an_all_reduce},
    {"AllReduceTakesBuffersOfAllTypesTogether", all_reduce_takes_buffers_of_all_types_together},
    {"ReduceScatterTakesEveryType", reduce_scatter_takes_every_type},
    {"MeanOfIntegersIsRefusedWithoutHarm", mean_of_integers_is_refused_without_harm},
});

}  // namespace poprun::contract
