#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/base/random.h"
#include "replica/ports/communicator.h"

/// What every Communicator must do, whatever carries the bytes. tests/unit/collectives runs these
/// sentences over threads, tests/mpi over processes; a new transport is done when it passes.
///
/// A sentence is called once a replica, each from its own thread or process, on one fresh world.
namespace poprun::contract {

struct Sentence {
  const char* name;
  void (*check)(Communicator& world);
};

// Odd sizes, smaller and larger than the number of replicas, a line, a chunk of any transport.
inline constexpr std::array<std::size_t, 6> kSizes = {0, 1, 2, 17, 1'000, 100'003};
inline constexpr std::size_t kMoreThanAChunk = 600'011;

/// Floats over 40 binades with both signs: sums depend on their order. A function of its arguments.
inline float rough_value(std::size_t replica, std::size_t index) {
  const auto words = philox(42, replica, index);
  const float mantissa = unit_float(words[0]) - 0.5F;
  return std::ldexp(mantissa, static_cast<int>(words[1] % 40) - 20);
}

/// The canonical tree, from the sentence of design section 6.
inline float tree_sum(const std::vector<float>& values) {
  if (values.size() == 1) {
    return values[0];
  }
  std::size_t left = 1;
  while (2 * left < values.size()) {
    left *= 2;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(left);
  return tree_sum({values.begin(), middle}) + tree_sum({middle, values.end()});
}

/// What reducing element `index` of everybody's rough values must give, to the bit.
inline float rough_result(Reduction reduction, std::size_t replicas, std::size_t index) {
  std::vector<float> values;
  for (std::size_t r = 0; r < replicas; ++r) {
    values.push_back(rough_value(r, index));
  }
  if (reduction == Reduction::kMax) {
    return *std::ranges::max_element(values);
  }
  const float sum = tree_sum(values);
  return reduction == Reduction::kMean ? sum / static_cast<float>(replicas) : sum;
}

inline void fill_rough(std::size_t replica, std::span<float> data, std::size_t first = 0) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = rough_value(replica, first + i);
  }
}

/// Compares bits, at up to 500 places that include both ends.
inline void expect_rough_result(Reduction reduction, std::size_t replicas,
                                std::span<const float> data, std::size_t first = 0) {
  const std::size_t stride = 1 + data.size() / 400;
  for (std::size_t i = 0; i < data.size();
       i = i + 1 == data.size() ? i + 1 : std::min(i + stride, data.size() - 1)) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(data[i]),
              std::bit_cast<std::uint32_t>(rough_result(reduction, replicas, first + i)))
        << "element " << i << " of " << data.size() << " is " << data[i];
  }
}

inline std::span<float> as_floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

inline Status all_reduce(Communicator& world, Reduction reduction, std::span<float> data) {
  return world.all_reduce(reduction, std::span(&data, 1));
}

inline std::size_t self_of(const Communicator& world) {
  return index_of(world.self());
}

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

// Worked out by hand. 2^24 is where float32 stops to hold odd numbers.
//   3 replicas   (0.1 + 2^24) - (2^24 - 1)  =  2^24 - (2^24 - 1)  =  1, and not 1.1
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

// One region:  | 5 | gap | 40,000 | gap | 1 | empty |   and between them a buffer of another kind
// of memory. What lies in the gaps stays.
inline void all_reduce_takes_buffers_of_all_kinds_together(Communicator& world) {
  const auto memory = world.allocate(Bytes{400'000});
  ASSERT_TRUE(memory);
  const std::span<float> region = as_floats(*memory);
  std::ranges::fill(region, -1.0F);
  std::vector<float> elsewhere(777);
  const std::array<std::span<float>, 5> buffers = {
      region.subspan(3, 5), region.subspan(100, 40'000), elsewhere, region.subspan(50'000, 1),
      region.subspan(60'000, 0)};
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    fill_rough(self_of(world), buffers[b], 1'000'000 * b);
  }

  const Status status = world.all_reduce(Reduction::kSum, buffers);

  ASSERT_TRUE(status) << status.error().message;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    expect_rough_result(Reduction::kSum, world.size(), buffers[b], 1'000'000 * b);
  }
  EXPECT_EQ(std::ranges::count(region, -1.0F),
            static_cast<std::ptrdiff_t>(region.size() - 5 - 40'000 - 1));
}

/// Sizes of a replica's shard.
inline constexpr std::array<std::size_t, 4> kShards = {0, 1, 33, 40'000};

inline void reduce_scatter_gives_each_replica_its_slice(Communicator& world) {
  for (const std::size_t size : kShards) {
    std::vector<float> data(size * world.size());
    fill_rough(self_of(world), data);
    const std::vector<float> before = data;
    std::vector<float> shard(size);

    ASSERT_TRUE(world.reduce_scatter(Reduction::kMean, data, shard));

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

    ASSERT_TRUE(world.reduce_scatter(Reduction::kSum, data, shard));

    expect_rough_result(Reduction::kSum, world.size(), shard, self_of(world) * size);
  }
}

inline void all_gather_concatenates(Communicator& world) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1'500'001}}) {
    const std::vector<std::byte> mine(size, static_cast<std::byte>(self_of(world) + 1));
    std::vector<std::byte> all(size * world.size());

    ASSERT_TRUE(world.all_gather(mine, all));

    for (std::size_t r = 0; r < world.size() && size > 0; ++r) {
      const auto part = std::span(all).subspan(r * size, size);
      EXPECT_EQ(std::ranges::count(part, static_cast<std::byte>(r + 1)),
                static_cast<std::ptrdiff_t>(size));
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

      EXPECT_EQ(std::ranges::count(data, static_cast<std::byte>(100 + root)),
                static_cast<std::ptrdiff_t>(data.size()));
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

// Four IPUs of the second generation. Sixteen of them are more than most machines have.
inline void allocate_is_sparse(Communicator& world) {
  const auto memory = world.allocate(Bytes{4LL * 940'572'672});
  ASSERT_TRUE(memory) << memory.error().message;
  const std::span<float> end = as_floats(*memory).last(33);
  std::ranges::fill(end, 1.0F);

  ASSERT_TRUE(all_reduce(world, Reduction::kSum, end));

  EXPECT_EQ(end[32], static_cast<float>(world.size()));
}

/// Collectives of all kinds and small sizes, drawn by every replica alike, with whole numbers.
inline void random_collectives(Communicator& world, std::size_t count) {
  const auto memory = world.allocate(Bytes{4'096});
  ASSERT_TRUE(memory);
  std::vector<std::byte> elsewhere(4'096);
  const std::size_t n = world.size();
  const std::size_t self = self_of(world);
  for (std::size_t call = 0; call < count; ++call) {
    const auto draw = philox(7, call, 0);
    const bool in_place = draw[0] % 2 == 0;
    const std::span<float> data = as_floats(in_place ? *memory : std::span(elsewhere));
    const std::size_t size = draw[1] % (1'000 / n);
    const auto value = [&](std::size_t replica, std::size_t i) {
      return static_cast<float>((call + replica * 31 + i * 7) % 1'000);
    };
    const auto sum = [&](std::size_t i) {
      float total = 0.0F;
      for (std::size_t r = 0; r < n; ++r) {
        total += value(r, i);
      }
      return total;
    };
    for (std::size_t i = 0; i < size * n; ++i) {
      data[i] = value(self, i);
    }
    std::vector<float> out(size * n);
    const std::span<float> all = std::span(out);
    std::size_t wrong = 0;
    switch (draw[2] % 4) {
      case 0:
        ASSERT_TRUE(all_reduce(world, Reduction::kSum, data.first(size)));
        for (std::size_t i = 0; i < size; ++i) {
          wrong += data[i] != sum(i) ? 1U : 0U;
        }
        break;
      case 1:
        ASSERT_TRUE(world.reduce_scatter(Reduction::kSum, data.first(size * n), all.first(size)));
        for (std::size_t i = 0; i < size; ++i) {
          wrong += out[i] != sum(self * size + i) ? 1U : 0U;
        }
        break;
      case 2:
        ASSERT_TRUE(world.all_gather(std::as_bytes(data.first(size)), std::as_writable_bytes(all)));
        for (std::size_t i = 0; i < size * n; ++i) {
          wrong += out[i] != value(i / size, i % size) ? 1U : 0U;
        }
        break;
      default: {
        const std::size_t root = draw[3] % n;
        ASSERT_TRUE(world.broadcast(std::as_writable_bytes(data.first(size)),
                                    static_cast<ReplicaId>(root)));
        for (std::size_t i = 0; i < size; ++i) {
          wrong += data[i] != value(root, i) ? 1U : 0U;
        }
      }
    }
    ASSERT_EQ(wrong, 0U) << "call " << call << ", size " << size;
  }
}

inline void collectives_in_any_order_do_not_mix(Communicator& world) {
  random_collectives(world, 100);
}

inline constexpr auto kSentences = std::to_array<Sentence>({
    {"AllReduceSumsOverReplicas", all_reduce_sums_over_replicas},
    {"AllReduceTakesTheLargest", all_reduce_takes_the_largest},
    {"AllReduceFollowsTheCanonicalTreeOfKnownValues",
     all_reduce_follows_the_canonical_tree_of_known_values},
    {"AllReduceGivesTheBitsOfTheCanonicalTree", all_reduce_gives_the_bits_of_the_canonical_tree},
    {"AllReduceTakesManyChunks", all_reduce_takes_many_chunks},
    {"AllReduceWorksInPlaceOnAllocatedMemory", all_reduce_works_in_place_on_allocated_memory},
    {"AllReduceTakesBuffersOfAllKindsTogether", all_reduce_takes_buffers_of_all_kinds_together},
    {"ReduceScatterGivesEachReplicaItsSlice", reduce_scatter_gives_each_replica_its_slice},
    {"ReduceScatterReadsAllocatedMemory", reduce_scatter_reads_allocated_memory},
    {"AllGatherConcatenates", all_gather_concatenates},
    {"AllGatherWorksInPlaceOnAllocatedMemory", all_gather_works_in_place_on_allocated_memory},
    {"BroadcastComesFromEachRoot", broadcast_comes_from_each_root},
    {"BroadcastTakesManyChunks", broadcast_takes_many_chunks},
    {"AllocateGivesZeroedPages", allocate_gives_zeroed_pages},
    {"AllocateIsSparse", allocate_is_sparse},
    {"CollectivesInAnyOrderDoNotMix", collectives_in_any_order_do_not_mix},
});

// Sentences about failures want a world with a deadline below a second and one replica a process.

inline void the_missing_replica_is_named(Communicator& world) {
  const std::size_t last = world.size() - 1;
  if (last == 0 || self_of(world) == last) {
    return;
  }
  std::vector<float> data(10);

  const Status status = all_reduce(world, Reduction::kSum, data);
  const Status again = world.barrier();

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInfrastructure);
  EXPECT_THAT(status.error().message,
              testing::StartsWith("all-reduce 1: replica " + std::to_string(last) +
                                  " did not arrive within "));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kInfrastructure);
}

inline void different_calls_fail_on_all_replicas(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  std::vector<float> data(3);

  const Status status =
      self_of(world) == 0 ? world.barrier() : all_reduce(world, Reduction::kSum, data);

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBug);
  EXPECT_THAT(
      status.error().message,
      testing::AllOf(testing::HasSubstr("call 1 differs"), testing::HasSubstr("replica 0: barrier"),
                     testing::HasSubstr(": all-reduce (sum) of 12 B")));
  EXPECT_FALSE(world.barrier());
}

inline void different_sizes_fail_on_all_replicas(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  const bool differs = self_of(world) == world.size() - 1;
  std::vector<float> data(differs ? 4 : 3);

  const Status status = all_reduce(world, Reduction::kMean, data);

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBug);
  EXPECT_THAT(status.error().message,
              testing::AllOf(testing::HasSubstr("all-reduce (mean) of 12 B"),
                             testing::HasSubstr("replica " + std::to_string(world.size() - 1) +
                                                ": all-reduce (mean) of 16 B")));
}

// Equal bytes, other cut: whoever checked only the total would add the wrong elements.
inline void different_buffers_fail_on_all_replicas(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  std::vector<float> data(10);
  const std::size_t cut = self_of(world) == 0 ? 4 : 6;
  const std::array<std::span<float>, 2> buffers = {std::span(data).first(cut),
                                                   std::span(data).subspan(cut)};

  const Status status = world.all_reduce(Reduction::kSum, buffers);

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBug);
  EXPECT_THAT(status.error().message, testing::HasSubstr("sizes or positions of its buffers"));
}

inline constexpr auto kFailures = std::to_array<Sentence>({
    {"TheMissingReplicaIsNamed", the_missing_replica_is_named},
    {"DifferentCallsFailOnAllReplicas", different_calls_fail_on_all_replicas},
    {"DifferentSizesFailOnAllReplicas", different_sizes_fail_on_all_replicas},
    {"DifferentBuffersFailOnAllReplicas", different_buffers_fail_on_all_replicas},
});

/// How GoogleTest prints the parameter of a suite over sentences.
inline void PrintTo(const Sentence& sentence, std::ostream* stream) {
  *stream << sentence.name;
}

}  // namespace poprun::contract
