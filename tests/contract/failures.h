#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/contract/sentence.h"

/// Requirements on the failures of a Communicator.
namespace poprun::contract {

// Sentences about failures need a world with a deadline below a second and one replica per process.

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
              testing::StartsWith("all-reduce 1: replica " + std::to_string(last) + " did not arrive within "));
  EXPECT_THAT(status.error().facts.missing, testing::ElementsAre(last));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kInfrastructure);
}

inline void different_calls_fail_on_all_replicas(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  std::vector<float> data(3);

  const Status status = self_of(world) == 0 ? world.barrier() : all_reduce(world, Reduction::kSum, data);

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBug);
  EXPECT_THAT(status.error().message,
              testing::AllOf(testing::HasSubstr("call 1 differs"), testing::HasSubstr("replica 0: barrier"),
                             testing::HasSubstr(": all-reduce (sum) of 12 B")));
  EXPECT_FALSE(world.barrier());
}

inline void expect_failure_of_sizes(Communicator& world, std::size_t size, std::size_t last_size) {
  if (world.size() == 1) {
    return;
  }
  const bool differs = self_of(world) == world.size() - 1;
  std::vector<float> data(differs ? last_size : size);

  const Status status = all_reduce(world, Reduction::kMean, data);

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBug);
  EXPECT_THAT(status.error().message,
              testing::AllOf(testing::HasSubstr("all-reduce (mean) of " + std::to_string(size * 4)),
                             testing::HasSubstr("replica " + std::to_string(world.size() - 1) +
                                                ": all-reduce (mean) of " + std::to_string(last_size * 4))));
}

inline void different_sizes_fail_on_all_replicas(Communicator& world) {
  expect_failure_of_sizes(world, 3, 4);
}

// A transport may send a few bytes by a different path than many.
inline void few_bytes_among_many_fail_on_all_replicas(Communicator& world) {
  expect_failure_of_sizes(world, 300'000, 3'000);
}

inline void many_bytes_among_few_fail_on_all_replicas(Communicator& world) {
  expect_failure_of_sizes(world, 3'000, 300'000);
}

// Equal totals, cut differently: an implementation that checks only totals would add wrong elements.
inline void different_buffers_fail_on_all_replicas(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  std::vector<float> data(10);
  const std::size_t cut = self_of(world) == 0 ? 4 : 6;
  const std::array<std::span<float>, 2> buffers = {std::span(data).first(cut), std::span(data).subspan(cut)};

  const Status status = all_reduce(world, Reduction::kSum, buffers);

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBug);
  EXPECT_THAT(status.error().message, testing::HasSubstr("types, sizes or positions of its buffers"));
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

// Equal sizes: without names, different tensors would be added up.
inline void different_names_fail_on_all_replicas(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  std::vector<float> data(3);
  const bool differs = self_of(world) == world.size() - 1;
  const Buffer buffer{ElementType::kF32, std::as_writable_bytes(std::span(data)),
                      differs ? "fc2.bias.gradient" : "fc1.bias.gradient"};

  const Status status = world.all_reduce(Reduction::kMean, std::span(&buffer, 1));

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBug);
  EXPECT_THAT(status.error().message,
              testing::AllOf(testing::HasSubstr("call 1 differs between replicas: replica"),
                             testing::HasSubstr(": all-reduce (mean) of 12 B ('fc1.bias.gradient'); "),
                             testing::HasSubstr("replica " + std::to_string(world.size() - 1) +
                                                ": all-reduce (mean) of 12 B ('fc2.bias.gradient')")));
}

inline void different_order_of_names_fails_on_all_replicas(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  std::vector<float> data(2);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(data));
  const bool differs = self_of(world) == 0;
  const std::array<Buffer, 3> buffers = {Buffer{ElementType::kF32, {}, "first"},
                                         Buffer{ElementType::kF32, bytes.first(4), differs ? "third" : "second"},
                                         Buffer{ElementType::kF32, bytes.last(4), differs ? "second" : "third"}};

  const Status status = world.all_reduce(Reduction::kSum, buffers);

  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message,
              testing::AllOf(testing::HasSubstr("in the names, types, sizes or positions of its buffers"),
                             testing::HasSubstr("('first' and 2 more)")));
}

inline void different_names_of_data_fail_on_all_replicas(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  std::vector<std::byte> data(3);

  const Status status = world.broadcast(data, ReplicaId{0}, self_of(world) == 0 ? "fc1.weight" : "fc2.weight");

  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, testing::HasSubstr("replica 0: broadcast of 3 B from replica 0 ('fc1.weight')"));
}

inline constexpr auto kFailures = std::to_array<Sentence>({
    {"TheMissingReplicaIsNamed", the_missing_replica_is_named},
    {"DifferentCallsFailOnAllReplicas", different_calls_fail_on_all_replicas},
    {"DifferentSizesFailOnAllReplicas", different_sizes_fail_on_all_replicas},
    {"FewBytesAmongManyFailOnAllReplicas", few_bytes_among_many_fail_on_all_replicas},
    {"ManyBytesAmongFewFailOnAllReplicas", many_bytes_among_few_fail_on_all_replicas},
    {"DifferentBuffersFailOnAllReplicas", different_buffers_fail_on_all_replicas},
    {"DifferentTypesFailOnAllReplicas", different_types_fail_on_all_replicas},
    {"DifferentNamesFailOnAllReplicas", different_names_fail_on_all_replicas},
    {"DifferentOrderOfNamesFailsOnAllReplicas", different_order_of_names_fails_on_all_replicas},
    {"DifferentNamesOfDataFailOnAllReplicas", different_names_of_data_fail_on_all_replicas},
});

}  // namespace poprun::contract
