#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ios>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/base/half.h"
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
inline constexpr std::array<std::size_t, 6> kSizes = {0, 1, 2, 17, 1'000, 30'011};
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
  const Buffer buffer = Buffer::of(data);
  return world.all_reduce(reduction, std::span(&buffer, 1));
}

inline Status all_reduce(Communicator& world, Reduction reduction,
                         std::span<const std::span<float>> data) {
  std::vector<Buffer> buffers;
  for (const std::span<float> floats : data) {
    buffers.push_back(Buffer::of(floats));
  }
  return world.all_reduce(reduction, buffers);
}

inline Status reduce_scatter(Communicator& world, Reduction reduction, std::span<const float> data,
                             std::span<float> shard) {
  return world.reduce_scatter(reduction, ElementType::kF32, std::as_bytes(data),
                              std::as_writable_bytes(shard));
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

  const Status status = all_reduce(world, Reduction::kSum, buffers);

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

/// Elements of one type over the replicas, as the sentences about types use them: what replica r
/// brings at index i, and what their reduction must be, both as bits.
struct TypedValues {
  ElementType type;
  std::uint32_t (*value)(std::size_t replica, std::size_t index);
  std::uint32_t (*reduced)(Reduction reduction, std::span<const std::uint32_t> values);
};

inline float combined(Reduction reduction, float a, float b) {
  return reduction == Reduction::kMax ? (a > b ? a : b) : a + b;
}

inline float reduced_floats(Reduction reduction, std::span<const float> values) {
  if (values.size() == 1) {
    return values[0];
  }
  std::size_t left = 1;
  while (2 * left < values.size()) {
    left *= 2;
  }
  return combined(reduction, reduced_floats(reduction, values.first(left)),
                  reduced_floats(reduction, values.subspan(left)));
}

inline float mean_or_sum(Reduction reduction, std::span<const float> values) {
  const float total = reduced_floats(reduction, values);
  return reduction == Reduction::kMean ? total / static_cast<float>(values.size()) : total;
}

/// Mostly numbers; among them infinities of one sign and of both, and NaN on one replica.
inline float special_or(float number, std::size_t replica, std::size_t index) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  switch (index % 31) {
    case 7:
      return replica == 0 ? std::numeric_limits<float>::quiet_NaN() : number;
    case 11:
      return replica == 1 ? -kInfinity : number;
    case 13:
      return replica % 2 == 0 ? kInfinity : -kInfinity;
    default:
      return number;
  }
}

inline std::uint32_t half_of(float value) {
  std::uint16_t half = 0;
  to_halves(&value, &half, 1);
  return half;
}

inline constexpr std::array<TypedValues, 3> kTypedValues = {{
    {ElementType::kF32,
     [](std::size_t replica, std::size_t index) {
       return std::bit_cast<std::uint32_t>(special_or(rough_value(replica, index), replica, index));
     },
     [](Reduction reduction, std::span<const std::uint32_t> values) {
       std::vector<float> floats;
       for (const std::uint32_t value : values) {
         floats.push_back(std::bit_cast<float>(value));
       }
       return std::bit_cast<std::uint32_t>(mean_or_sum(reduction, floats));
     }},
    // The largest are near 2^15, so that some sums overflow though no value does.
    {ElementType::kF16,
     [](std::size_t replica, std::size_t index) {
       const auto words = philox(43, replica, index);
       const float number =
           std::ldexp(unit_float(words[0]) - 0.25F,
                      index % 31 == 17 ? 15 : static_cast<int>(words[1] % 30) - 20);
       return half_of(special_or(number, replica, index));
     },
     [](Reduction reduction, std::span<const std::uint32_t> values) {
       std::vector<float> floats(values.size());
       for (std::size_t r = 0; r < values.size(); ++r) {
         const auto half = static_cast<std::uint16_t>(values[r]);
         to_floats(&half, &floats[r], 1);
       }
       return half_of(mean_or_sum(reduction, floats));
     }},
    {ElementType::kI32,
     [](std::size_t replica, std::size_t index) { return philox(44, replica, index)[0]; },
     [](Reduction reduction, std::span<const std::uint32_t> values) {
       const auto largest = [](std::uint32_t a, std::uint32_t b) {
         return static_cast<std::int32_t>(a) < static_cast<std::int32_t>(b);
       };
       return reduction == Reduction::kMax
                  ? *std::ranges::max_element(values, largest)
                  : std::accumulate(values.begin(), values.end(), std::uint32_t{0});
     }},
}};

inline bool is_nan(ElementType type, std::uint32_t bits) {
  return (type == ElementType::kF32 && std::isnan(std::bit_cast<float>(bits))) ||
         (type == ElementType::kF16 && (bits & 0x7fffU) > 0x7c00U);
}

inline void fill_typed(const TypedValues& values, std::size_t replica, std::span<std::byte> data,
                       std::size_t first = 0) {
  const std::size_t width = size_of(values.type);
  for (std::size_t i = 0; i < data.size() / width; ++i) {
    const std::uint32_t value = values.value(replica, first + i);
    std::memcpy(data.data() + i * width, &value, width);  // Little-endian.
  }
}

/// Compares bits, except of NaNs, at up to 500 places that include both ends.
inline void expect_typed_result(const TypedValues& values, Reduction reduction,
                                std::size_t replicas, std::span<const std::byte> data,
                                std::size_t first = 0) {
  const std::size_t width = size_of(values.type);
  const std::size_t count = data.size() / width;
  const std::size_t stride = 1 + count / 400;
  for (std::size_t i = 0; i < count; i = i + 1 == count ? i + 1 : std::min(i + stride, count - 1)) {
    std::vector<std::uint32_t> all;
    for (std::size_t r = 0; r < replicas; ++r) {
      all.push_back(values.value(r, first + i));
    }
    const std::uint32_t expected = values.reduced(reduction, all);
    std::uint32_t found = 0;
    std::memcpy(&found, data.data() + i * width, width);
    ASSERT_TRUE(found == expected || (is_nan(values.type, found) && is_nan(values.type, expected)))
        << "element " << i << " of " << count << " is " << std::hex << found << ", not "
        << expected;
  }
}

inline std::vector<Reduction> reductions_of(ElementType type) {
  return type == ElementType::kI32
             ? std::vector{Reduction::kSum, Reduction::kMax}
             : std::vector{Reduction::kSum, Reduction::kMax, Reduction::kMean};
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

// Odd counts of halves before floats, in allocated memory and outside of it, more than a chunk.
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
    expect_typed_result(values_of(buffers[b].type), Reduction::kSum, world.size(), buffers[b].bytes,
                        1'000'000 * b);
  }
}

inline void reduce_scatter_takes_every_type(Communicator& world) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{33}, std::size_t{6'007}}) {
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
  const Status scattered =
      world.reduce_scatter(Reduction::kMean, ElementType::kI32, data, std::span(data).first(4));

  ASSERT_FALSE(reduced);
  EXPECT_EQ(reduced.error().code, ErrorCode::kBug);
  EXPECT_THAT(reduced.error().message, testing::HasSubstr("integers have no mean"));
  EXPECT_FALSE(scattered);
  EXPECT_TRUE(world.barrier());
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
  constexpr std::size_t kBytes = 100'000;
  const auto memory = world.allocate(Bytes{kBytes});
  ASSERT_TRUE(memory);
  std::vector<std::byte> elsewhere(kBytes);
  const std::size_t n = world.size();
  const std::size_t self = self_of(world);
  for (std::size_t call = 0; call < count; ++call) {
    const auto draw = philox(7, call, 0);
    const bool in_place = draw[0] % 2 == 0;
    const std::span<float> data = as_floats(in_place ? *memory : std::span(elsewhere));
    const std::size_t most = draw[3] % 16 == 0 ? kBytes / sizeof(float) : 1'000;
    const std::size_t size = draw[1] % (most / n);
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
        ASSERT_TRUE(reduce_scatter(world, Reduction::kSum, data.first(size * n), all.first(size)));
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
        const std::size_t root = draw[3] / 16 % n;
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
    {"AllReduceTakesEveryType", all_reduce_takes_every_type},
    {"AllReduceTakesBuffersOfAllTypesTogether", all_reduce_takes_buffers_of_all_types_together},
    {"ReduceScatterTakesEveryType", reduce_scatter_takes_every_type},
    {"MeanOfIntegersIsRefusedWithoutHarm", mean_of_integers_is_refused_without_harm},
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

  const Status status = all_reduce(world, Reduction::kSum, buffers);

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBug);
  EXPECT_THAT(status.error().message,
              testing::HasSubstr("types, sizes or positions of its buffers"));
}

inline void different_types_fail_on_all_replicas(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  std::vector<std::byte> data(8);
  const Buffer buffer{self_of(world) == 0 ? ElementType::kF32 : ElementType::kF16, data};

  const Status status = world.all_reduce(Reduction::kSum, std::span(&buffer, 1));

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBug);
  EXPECT_THAT(status.error().message, testing::HasSubstr("types, sizes or positions"));
}

inline constexpr auto kFailures = std::to_array<Sentence>({
    {"TheMissingReplicaIsNamed", the_missing_replica_is_named},
    {"DifferentCallsFailOnAllReplicas", different_calls_fail_on_all_replicas},
    {"DifferentSizesFailOnAllReplicas", different_sizes_fail_on_all_replicas},
    {"DifferentBuffersFailOnAllReplicas", different_buffers_fail_on_all_replicas},
    {"DifferentTypesFailOnAllReplicas", different_types_fail_on_all_replicas},
});

/// How GoogleTest prints the parameter of a suite over sentences.
inline void PrintTo(const Sentence& sentence, std::ostream* stream) {
  *stream << sentence.name;
}

}  // namespace poprun::contract
