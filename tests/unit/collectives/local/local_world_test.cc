#include "collectives/local/local_world.h"

#include <chrono>
#include <cstddef>
#include <functional>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/contract/communicator_contract.h"
#include "tests/contract/random_program.h"

namespace poprun {
namespace {

using namespace std::chrono_literals;

using contract::Sentence;

void run_local_world(const LocalWorld::Options& options, const std::function<void(Communicator&)>& replica) {
  const auto world = LocalWorld::create(options);
  ASSERT_TRUE(world) << world.error().message;
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < options.replicas; ++i) {
    threads.emplace_back([&, i] { replica((*world)->communicator(static_cast<ReplicaId>(i))); });
  }
}

using Parameter = std::tuple<std::size_t, Sentence>;

std::string name_of(const ::testing::TestParamInfo<Parameter>& info) {
  return std::get<1>(info.param).name + std::string("Among") + std::to_string(std::get<0>(info.param));
}

class LocalWorldContract : public ::testing::TestWithParam<Parameter> {};

TEST_P(LocalWorldContract, Holds) {
  run_local_world({.replicas = std::get<0>(GetParam()), .deadline = 60s}, std::get<1>(GetParam()).check);
}

INSTANTIATE_TEST_SUITE_P(Sentences, LocalWorldContract,
                         ::testing::Combine(::testing::Values(1U, 2U, 3U, 4U, 7U, 16U),
                                            ::testing::ValuesIn(contract::channel_sentences())),
                         name_of);

class LocalWorldGroups : public ::testing::TestWithParam<Parameter> {};

TEST_P(LocalWorldGroups, Hold) {
  run_local_world({.replicas = std::get<0>(GetParam()), .deadline = 60s}, std::get<1>(GetParam()).check);
}

INSTANTIATE_TEST_SUITE_P(Sentences, LocalWorldGroups,
                         ::testing::Combine(::testing::Values(1U, 2U, 3U, 4U, 7U, 12U, 16U),
                                            ::testing::ValuesIn(contract::group_sentences())),
                         name_of);

class LocalGroupContract : public ::testing::TestWithParam<Parameter> {};

TEST_P(LocalGroupContract, Holds) {
  run_local_world({.replicas = std::get<0>(GetParam()), .deadline = 60s},
                  [](Communicator& world) { contract::in_some_groups(world, std::get<1>(GetParam())); });
}

INSTANTIATE_TEST_SUITE_P(Sentences, LocalGroupContract,
                         ::testing::Combine(::testing::Values(1U, 2U, 3U, 4U, 7U, 16U),
                                            ::testing::ValuesIn(contract::channel_sentences())),
                         name_of);

class LocalWorldFailure : public ::testing::TestWithParam<Parameter> {};

TEST_P(LocalWorldFailure, IsReported) {
  run_local_world({.replicas = std::get<0>(GetParam()), .deadline = 200ms}, std::get<1>(GetParam()).check);
}

INSTANTIATE_TEST_SUITE_P(Sentences, LocalWorldFailure,
                         ::testing::Combine(::testing::Values(2U, 4U, 7U),
                                            ::testing::ValuesIn(contract::failure_sentences())),
                         name_of);

TEST(LocalWorld, TellsALateReplicaWhyTheOthersLeft) {
  const auto world = LocalWorld::create({.replicas = 3, .deadline = 50ms});
  ASSERT_TRUE(world);
  Status first;
  {
    std::jthread other([&] { EXPECT_FALSE((*world)->communicator(ReplicaId{1}).barrier()); });
    first = (*world)->communicator(ReplicaId{0}).barrier();
  }

  const Status late = (*world)->communicator(ReplicaId{2}).barrier();

  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().message, "barrier 1: replica 2 did not arrive within 50 ms");
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().message, first.error().message);
}

TEST(LocalWorld, NamesAReplicaThatLeavesInsideACall) {
  run_local_world({.replicas = 4, .deadline = 100ms}, [](Communicator& world) {
    EXPECT_TRUE(world.barrier());
    if (index_of(world.self()) == 1 || index_of(world.self()) == 2) {
      return;
    }
    const Status status = world.barrier();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message, "barrier 2: replicas 1-2 did not arrive within 100 ms");
  });
}

TEST(LocalWorld, FailsOnAllReplicasWhereMemoryCannotBeHad) {
  run_local_world({.replicas = 3, .deadline = 60s}, [](Communicator& world) {
    const auto memory = world.allocate(Bytes{std::int64_t{1} << 58});
    ASSERT_FALSE(memory);
    EXPECT_EQ(memory.error().code, ErrorCode::kHostResources);
    EXPECT_THAT(memory.error().message, ::testing::HasSubstr("B of memory for the exchange"));
    EXPECT_FALSE(world.barrier());
  });
}

TEST(LocalWorld, RefusesInPlaceExchangeAtDifferentPositions) {
  run_local_world({.replicas = 2, .deadline = 60s}, [](Communicator& world) {
    const auto memory = world.allocate(Bytes{4'096});
    ASSERT_TRUE(memory);
    std::span<float> data = contract::as_floats(*memory).subspan(16 * contract::self_of(world), 16);
    const Status status = contract::all_reduce(world, Reduction::kSum, data);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kBug);
    EXPECT_THAT(status.error().message, ::testing::HasSubstr("positions of its buffers"));
  });
}

/// The parameters are the numbers of replicas and of calls.
class LocalRandomProgram : public ::testing::TestWithParam<std::tuple<std::size_t, std::size_t>> {};

TEST_P(LocalRandomProgram, GivesTheBitsOfTheCanonicalTree) {
  const std::size_t calls = std::get<1>(GetParam());
  run_local_world({.replicas = std::get<0>(GetParam()), .deadline = 60s},
                  [calls](Communicator& world) { contract::RandomProgram(/*seed=*/world.size()).run(world, calls); });
}

INSTANTIATE_TEST_SUITE_P(Worlds, LocalRandomProgram,
                         ::testing::Values(std::tuple{12U, 10'000U}, std::tuple{1U, 1'000U}, std::tuple{2U, 1'000U},
                                           std::tuple{7U, 1'000U}, std::tuple{16U, 1'000U}),
                         [](const auto& world) {
                           return std::to_string(std::get<1>(world.param)) + "CallsAmong" +
                                  std::to_string(std::get<0>(world.param));
                         });

}  // namespace
}  // namespace poprun
