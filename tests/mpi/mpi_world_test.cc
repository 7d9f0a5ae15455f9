#include "collectives/mpi/mpi_world.h"

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <mpi.h>

#include "tests/contract/communicator_contract.h"
#include "tests/contract/random_program.h"

namespace poprun {
namespace {

using namespace std::chrono_literals;

using contract::Sentence;

/// How replicas lie on the processes of the job, and those on hosts.
struct Placement {
  const char* name;
  std::size_t even;  ///< Replicas of a process with an even position.
  std::size_t odd;
  std::uint64_t hosts;    ///< 1: the machine is asked. Otherwise as `order` says.
  bool reversed = false;  ///< The last rank owns replica 0.
  enum class Order : std::uint8_t {
    kTurns,      ///< 0 1 2 0 1 2 0
    kBlocks,     ///< 0 0 0 1 1 2 2
    kUnequal,    ///< 0 1 1 1 1 1 2
    kScattered,  ///< 0 0 1 2 2 0 0
  } order = Order::kTurns;
  std::size_t chunk_bytes = std::size_t{1} << 20U;

  /// Of the process at a position.
  [[nodiscard]] std::uint64_t host(std::size_t position, std::size_t processes) const {
    switch (order) {
      case Order::kTurns:
        return position % hosts;
      case Order::kBlocks:
        return position * hosts / processes;
      case Order::kUnequal:
        return position == 0 ? 0 : (position + 1 == processes ? hosts - 1 : 1 % hosts);
      case Order::kScattered:
        return position * position / 3 % hosts;
    }
    return 0;
  }
};
using Order = Placement::Order;

constexpr Placement kPlacements[] = {
    {"OneHost", 1, 1, 1},
    {"OneHostSeveralReplicasAProcess", 3, 1, 1},
    {"TwoHosts", 1, 1, 2},
    {"ThreeHostsSeveralReplicasAProcess", 2, 1, 3},
    {"OneHostReversed", 1, 2, 1, true},
    {"FourHostsReversed", 1, 2, 4, true},
    {"TwoHostsInBlocks", 1, 1, 2, false, Order::kBlocks},
    {"FourHostsInBlocksSmallChunks", 2, 1, 4, false, Order::kBlocks, 64 * 127},
    {"ThreeUnequalHostsOddChunks", 1, 1, 3, true, Order::kUnequal, 100'000},
    {"ThreeScatteredHosts", 1, 2, 3, false, Order::kScattered},
};

void PrintTo(const Placement& placement, std::ostream* stream) {
  *stream << placement.name;
}

int rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

std::size_t processes() {
  int count = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  return static_cast<std::size_t>(count);
}

MpiWorld::Options options_of(const Placement& placement, std::chrono::milliseconds deadline) {
  const auto my_rank = static_cast<std::size_t>(rank());
  const std::size_t position = placement.reversed ? processes() - 1 - my_rank : my_rank;
  MpiWorld::Options options{.replicas = 0, .deadline = deadline, .host = std::nullopt};
  for (std::size_t i = 0; i < processes(); ++i) {
    if (i == position) {
      options.first = static_cast<ReplicaId>(options.replicas);
      options.local = i % 2 == 0 ? placement.even : placement.odd;
    }
    options.replicas += i % 2 == 0 ? placement.even : placement.odd;
  }
  if (placement.hosts > 1) {
    options.host = placement.host(position, processes());
  }
  options.chunk_bytes = placement.chunk_bytes;
  return options;
}

void run_mpi_world(const MpiWorld::Options& options,
                   const std::function<void(Communicator&)>& replica) {
  const auto world = MpiWorld::create(options);
  ASSERT_TRUE(world) << world.error().message;
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < options.local; ++i) {
      const auto id = static_cast<ReplicaId>(index_of(options.first) + i);
      threads.emplace_back([&, id] { replica((*world)->communicator(id)); });
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);  // A replica may have left early; the next world needs all again.
}

using Parameter = std::tuple<Placement, Sentence>;

std::string name_of(const ::testing::TestParamInfo<Parameter>& info) {
  return std::get<1>(info.param).name + std::string("On") + std::get<0>(info.param).name;
}

class MpiWorldContract : public ::testing::TestWithParam<Parameter> {};

TEST_P(MpiWorldContract, Holds) {
  run_mpi_world(options_of(std::get<0>(GetParam()), 60s), std::get<1>(GetParam()).check);
}

INSTANTIATE_TEST_SUITE_P(Sentences, MpiWorldContract,
                         ::testing::Combine(::testing::ValuesIn(kPlacements),
                                            ::testing::ValuesIn(contract::channel_sentences())),
                         name_of);

class MpiWorldGroups : public ::testing::TestWithParam<Parameter> {};

TEST_P(MpiWorldGroups, Hold) {
  run_mpi_world(options_of(std::get<0>(GetParam()), 60s), std::get<1>(GetParam()).check);
}

INSTANTIATE_TEST_SUITE_P(Sentences, MpiWorldGroups,
                         ::testing::Combine(::testing::Values(kPlacements[1], kPlacements[3],
                                                              kPlacements[5], kPlacements[6],
                                                              kPlacements[9]),
                                            ::testing::ValuesIn(contract::group_sentences())),
                         name_of);

class MpiGroupContract : public ::testing::TestWithParam<Parameter> {};

TEST_P(MpiGroupContract, Holds) {
  run_mpi_world(options_of(std::get<0>(GetParam()), 60s), [](Communicator& world) {
    contract::in_some_groups(world, std::get<1>(GetParam()));
  });
}

INSTANTIATE_TEST_SUITE_P(Sentences, MpiGroupContract,
                         ::testing::Combine(::testing::Values(kPlacements[3], kPlacements[9]),
                                            ::testing::ValuesIn(contract::channel_sentences())),
                         name_of);

class MpiWorldFailure : public ::testing::TestWithParam<Parameter> {};

TEST_P(MpiWorldFailure, IsReported) {
  run_mpi_world(options_of(std::get<0>(GetParam()), 2s), std::get<1>(GetParam()).check);
}

INSTANTIATE_TEST_SUITE_P(Sentences, MpiWorldFailure,
                         ::testing::Combine(::testing::Values(kPlacements[0], kPlacements[2],
                                                              kPlacements[6]),
                                            ::testing::ValuesIn(contract::failure_sentences())),
                         name_of);

TEST(MpiWorld, RefusesBlocksThatAreNotTheJobsReplicas) {
  MpiWorld::Options options = options_of(kPlacements[0], 60s);
  options.replicas += 1;

  const auto world = MpiWorld::create(options);

  ASSERT_FALSE(world);
  EXPECT_EQ(world.error().code, ErrorCode::kBug);
  EXPECT_EQ(world.error().message, "the processes own " + std::to_string(processes()) +
                                       " replicas, the job has " + std::to_string(processes() + 1));
}

TEST(MpiWorld, RefusesProcessesThatClaimTheSameReplicas) {
  if (processes() == 1) {
    GTEST_SKIP() << "needs two processes";
  }
  MpiWorld::Options options = options_of(kPlacements[0], 60s);
  options.first = ReplicaId{0};

  const auto world = MpiWorld::create(options);

  ASSERT_FALSE(world);
  EXPECT_EQ(world.error().code, ErrorCode::kBug);
  EXPECT_THAT(world.error().message, ::testing::HasSubstr("expected some from 1"));
}

class MpiRandomProgram : public ::testing::TestWithParam<Placement> {};

TEST_P(MpiRandomProgram, GivesTheBitsOfTheCanonicalTree) {
  run_mpi_world(options_of(GetParam(), 60s), [](Communicator& world) {
    contract::RandomProgram(/*seed=*/world.size()).run(world, 1'000);
  });
}

INSTANTIATE_TEST_SUITE_P(Placements, MpiRandomProgram,
                         ::testing::Values(kPlacements[1], kPlacements[3], kPlacements[8],
                                           kPlacements[9]),
                         [](const auto& placement) { return std::string(placement.param.name); });

}  // namespace
}  // namespace poprun
