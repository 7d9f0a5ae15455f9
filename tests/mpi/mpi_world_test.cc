#include "collectives/mpi/mpi_world.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include <mpi.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/contract/communicator_contract.h"
#include "tests/contract/random_program.h"

namespace poprun {
namespace {

using namespace std::chrono_literals;

using contract::Sentence;

/// Placement of replicas on processes, and of processes on hosts.
struct Placement {
  const char* name;
  std::size_t even;  ///< Replicas per process at even positions.
  std::size_t odd;
  std::uint64_t hosts;    ///< 1: the machine's own number. Otherwise see `order`.
  bool reversed = false;  ///< The last rank owns replica 0.
  enum class Order : std::uint8_t {
    kTurns,      ///< 0 1 2 0 1 2 0
    kBlocks,     ///< 0 0 0 1 1 2 2
    kUnequal,    ///< 0 1 1 1 1 1 2
    kScattered,  ///< 0 0 1 2 2 0 0
  } order = Order::kTurns;
  std::size_t chunk_bytes = std::size_t{1} << 20U;

  /// The host of the process at `position`.
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
    {"HostsOfOneProcess", 1, 1, 64},
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

constexpr const char* kFewer = "this placement is tested with fewer processes";

/// Returns whether a placement is tested with this number of processes. With many, a test takes seconds, so only those
/// placements are tested in which hosts differ most.
bool is_tested_here(const Placement& placement) {
  constexpr std::array<std::string_view, 3> kWithMany = {"TwoHostsInBlocks", "ThreeUnequalHostsOddChunks",
                                                         "ThreeScatteredHosts"};
  return processes() <= 4 || std::ranges::find(kWithMany, placement.name) != kWithMany.end();
}

void run_mpi_world(const MpiWorld::Options& options, const std::function<void(Communicator&)>& replica) {
  const auto world = MpiWorld::create(options);
  ASSERT_TRUE(world) << world.error().message;
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < options.local; ++i) {
      const auto id = static_cast<ReplicaId>(index_of(options.first) + i);
      threads.emplace_back([&, id] { replica((*world)->communicator(id)); });
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);  // A replica may have finished early, and the next world needs all of them.
}

using Parameter = std::tuple<Placement, Sentence>;

std::string name_of(const ::testing::TestParamInfo<Parameter>& info) {
  return std::get<1>(info.param).name + std::string("On") + std::get<0>(info.param).name;
}

class MpiWorldContract : public ::testing::TestWithParam<Parameter> {};

TEST_P(MpiWorldContract, Holds) {
  if (!is_tested_here(std::get<0>(GetParam()))) {
    GTEST_SKIP() << kFewer;
  }
  run_mpi_world(options_of(std::get<0>(GetParam()), 60s), std::get<1>(GetParam()).check);
}

INSTANTIATE_TEST_SUITE_P(Sentences, MpiWorldContract,
                         ::testing::Combine(::testing::ValuesIn(kPlacements),
                                            ::testing::ValuesIn(contract::channel_sentences())),
                         name_of);

/// Buffers of every type, with odd tails, in allocated memory and outside it.
struct MixedBuffers {
  explicit MixedBuffers(Communicator& world) {
    constexpr std::array<std::size_t, 3> kCounts = {8'011, 2'007, 1'001};
    const auto memory = world.allocate(Bytes{100'000});
    EXPECT_TRUE(memory);
    std::size_t at = 0;
    for (std::size_t t = 0; t < kCounts.size(); ++t) {
      const contract::TypedValues& values = contract::kTypedValues[t];
      const std::size_t bytes = kCounts[t] * size_of(values.type);
      for (const std::span<std::byte> place : {*memory, std::span(outside)}) {
        buffers.push_back({values.type, place.subspan(at, bytes)});
        contract::fill_typed(values, index_of(world.self()), buffers.back().bytes);
      }
      at += (bytes + 63) / 64 * 64;
    }
  }

  void expect_sums_of(std::size_t replicas) const {
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      contract::expect_typed_result(contract::kTypedValues[b / 2], Reduction::kSum, replicas, buffers[b].bytes);
    }
  }

  std::vector<std::byte> outside = std::vector<std::byte>(100'000);
  std::vector<Buffer> buffers;
};

class MpiWorldOnHosts : public ::testing::TestWithParam<std::tuple<std::uint64_t, Placement::Order>> {};

// One or several replicas per process, chunks from the smallest to larger than all data, with and without a background
// reduction. Each order of hosts uses half of the chunk sizes, so that all orders together use each of them with each
// placement.
TEST_P(MpiWorldOnHosts, GivesTheSameBitsForAnyReplicasAndAnyChunks) {
  constexpr std::array<std::size_t, 4> kChunkBytes = {0, 50'000, 8'128, 1U << 20U};
  const auto [hosts, order] = GetParam();
  std::size_t turn = hosts + static_cast<std::size_t>(order);
  for (const Placement& placement : {Placement{"", 1, 1, hosts, true, order}, Placement{"", 4, 4, hosts, false, order},
                                     Placement{"", 3, 1, hosts, true, order}}) {
    ++turn;
    MpiWorld::Options options = options_of(placement, 60s);
    if (options.replicas > 32) {
      continue;  // Adds only time, no coverage.
    }
    for (const std::size_t chunk_bytes : {kChunkBytes[turn % 2], kChunkBytes[2 + turn % 2]}) {
      options.chunk_bytes = std::max(chunk_bytes, 64 * options.replicas);
      SCOPED_TRACE(::testing::Message() << placement.even << " and " << placement.odd
                                        << " replicas per process, chunks of " << chunk_bytes);
      run_mpi_world(options, [](Communicator& world) {
        const MixedBuffers at_once(world);
        const MixedBuffers meanwhile(world);
        ASSERT_TRUE(world.begin_all_reduce(Reduction::kSum, meanwhile.buffers));
        ASSERT_TRUE(world.all_reduce(Reduction::kSum, at_once.buffers));
        ASSERT_TRUE(world.await_all_reduces());
        at_once.expect_sums_of(world.size());
        meanwhile.expect_sums_of(world.size());
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, MpiWorldOnHosts,
                         ::testing::Combine(::testing::Range<std::uint64_t>(2, 5),
                                            ::testing::Values(Order::kTurns, Order::kBlocks, Order::kUnequal,
                                                              Order::kScattered)));

class MpiWorldGroups : public ::testing::TestWithParam<Parameter> {};

TEST_P(MpiWorldGroups, Hold) {
  if (!is_tested_here(std::get<0>(GetParam()))) {
    GTEST_SKIP() << kFewer;
  }
  run_mpi_world(options_of(std::get<0>(GetParam()), 60s), std::get<1>(GetParam()).check);
}

INSTANTIATE_TEST_SUITE_P(Sentences, MpiWorldGroups,
                         ::testing::Combine(::testing::Values(kPlacements[1], kPlacements[3], kPlacements[5],
                                                              kPlacements[6], kPlacements[9]),
                                            ::testing::ValuesIn(contract::group_sentences())),
                         name_of);

class MpiGroupContract : public ::testing::TestWithParam<Parameter> {};

TEST_P(MpiGroupContract, Holds) {
  if (!is_tested_here(std::get<0>(GetParam()))) {
    GTEST_SKIP() << kFewer;
  }
  run_mpi_world(options_of(std::get<0>(GetParam()), 60s),
                [](Communicator& world) { contract::in_some_groups(world, std::get<1>(GetParam())); });
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
                         ::testing::Combine(::testing::Values(kPlacements[0], kPlacements[6]),
                                            ::testing::ValuesIn(contract::failure_sentences())),
                         name_of);

TEST(MpiWorld, RefusesBlocksThatAreNotTheJobsReplicas) {
  MpiWorld::Options options = options_of(kPlacements[0], 60s);
  options.replicas += 1;

  const auto world = MpiWorld::create(options);

  ASSERT_FALSE(world);
  EXPECT_EQ(world.error().code, ErrorCode::kBug);
  EXPECT_EQ(world.error().message, "the processes own " + std::to_string(processes()) + " replicas, but the job has " +
                                       std::to_string(processes() + 1));
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
  EXPECT_THAT(world.error().message, ::testing::HasSubstr("expected at least one, starting at 1"));
}

// The first replica of a process carries data between hosts for the others; here it is the missing one.
TEST(MpiWorld, NamesToAllHostsTheReplicaThatCarriesForItsProcess) {
  if (processes() == 1) {
    GTEST_SKIP() << "needs two hosts";
  }
  const Placement placement{"", 2, 2, 2, false, Order::kBlocks};
  const auto carries = static_cast<ReplicaId>(2 * (processes() - 1));
  run_mpi_world(options_of(placement, 2s), [&](Communicator& world) {
    if (world.self() == carries) {
      return;
    }

    const Status status = world.barrier();

    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message,
                ::testing::StartsWith("barrier 1: replica " + std::to_string(index_of(carries)) +
                                      " did not arrive within 2 s"));
  });
}

/// While it exists, this process cannot open any more files.
class NoFiles {
 public:
  NoFiles() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::dup(STDERR_FILENO);
    ::close(next);
    const rlimit none{static_cast<rlim_t>(next), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoFiles(const NoFiles&) = delete;
  NoFiles& operator=(const NoFiles&) = delete;

 private:
  rlimit before_{};
};

// The first process of a host creates the memory, the others open it.
TEST(MpiWorld, SaysOnAllProcessesWhichOfThemCannotHaveTheMemory) {
  if (processes() < 4) {
    GTEST_SKIP() << "needs two processes on each of two hosts";
  }
  for (const std::uint64_t hosts : {1U, 2U}) {
    for (const int which : {0, 1, 2}) {
      MpiWorld::Options options = options_of({"", 1, 1, hosts}, 60s);
      options.host = index_of(options.first) % hosts;  // Asking the machine would need a file.
      const auto limited = rank() == which ? std::make_unique<NoFiles>() : nullptr;

      const auto world = MpiWorld::create(options);

      ASSERT_FALSE(world);
      EXPECT_EQ(world.error().code, ErrorCode::kHostResources);
      EXPECT_THAT(world.error().message,
                  ::testing::AllOf(::testing::StartsWith("replica " + std::to_string(which) + ": "),
                                   ::testing::HasSubstr("B of memory for the exchange: Too many "
                                                        "open files")));
    }
  }
}

class MpiRandomProgram : public ::testing::TestWithParam<Placement> {};

TEST_P(MpiRandomProgram, GivesTheBitsOfTheCanonicalTree) {
  if (!is_tested_here(GetParam())) {
    GTEST_SKIP() << kFewer;
  }
  const std::size_t calls = processes() <= 4 ? 1'000 : 300;
  run_mpi_world(options_of(GetParam(), 60s),
                [&](Communicator& world) { contract::RandomProgram(/*seed=*/world.size()).run(world, calls); });
}

INSTANTIATE_TEST_SUITE_P(Placements, MpiRandomProgram,
                         ::testing::Values(kPlacements[1], kPlacements[3], kPlacements[8], kPlacements[9],
                                           kPlacements[10]),
                         [](const auto& placement) { return std::string(placement.param.name); });

}  // namespace
}  // namespace poprun
