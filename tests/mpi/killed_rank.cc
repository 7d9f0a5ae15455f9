/// killed_rank CALL HOSTS VICTIM: a job whose ranks, one replica each, repeat one kind of collective until one of them
/// is killed in the middle of it or, with CALL "start", before the first one. The others print their error, as "rank 0
/// after 2.1 s: MESSAGE", and exit. killed_rank_test.py parses these lines.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>
#include <unistd.h>

#include "collectives/mpi/mpi_world.h"

namespace poprun {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDeadline = 2s;

/// The call in which the victim dies. The last rank arrives late, when the victim is already inside, so that all ranks
/// enter the call and none completes it.
constexpr int kFatalCall = 4;
constexpr auto kDeath = 150ms;
constexpr auto kLateness = 300ms;

/// Many chunks per replica, in allocated memory.
constexpr std::size_t kBytes = std::size_t{12} << 20U;

Status call(Communicator& world, const std::string& kind, std::span<std::byte> memory) {
  const std::span<std::byte> data = memory.first(kBytes);
  const std::span<std::byte> part = memory.subspan(kBytes, kBytes / world.size());
  if (kind == "all-reduce") {
    const Buffer buffer{ElementType::kF32, data};
    return world.all_reduce(Reduction::kSum, std::span(&buffer, 1));
  }
  if (kind == "reduce-scatter") {
    return world.reduce_scatter(Reduction::kSum, ElementType::kF32, data, part);
  }
  if (kind == "all-gather") {
    return world.all_gather(part, data);
  }
  if (kind == "broadcast") {
    return world.broadcast(data, ReplicaId{0});
  }
  if (kind == "allocate") {
    const auto region = world.allocate(Bytes{4'096});
    return region ? Status{} : Status(tl::unexpected<Error>{region.error()});
  }
  return world.barrier();
}

struct Arguments {
  std::string kind;
  std::size_t hosts;
  std::size_t victim;
};

[[noreturn]] void leave(std::size_t rank, Clock::time_point entered, const Error& error) {
  const std::chrono::duration<double> waited = Clock::now() - entered;
  std::printf("rank %zu after %.1f s: %s\n", rank, waited.count(), error.message.c_str());
  std::fflush(stdout);
  ::_exit(0);  // MPI_Finalize would wait for the dead rank.
}

/// Makes calls until one fails.
[[noreturn]] void run(const Arguments& arguments, std::size_t rank, std::size_t ranks) {
  if (arguments.kind == "start" && rank == arguments.victim) {
    ::kill(::getpid(), SIGKILL);
  }
  Clock::time_point entered = Clock::now();
  const auto world = MpiWorld::create({.replicas = ranks,
                                       .first = static_cast<ReplicaId>(rank),
                                       .deadline = kDeadline,
                                       .host = rank * arguments.hosts / ranks});
  if (!world) {
    leave(rank, entered, world.error());
  }
  Communicator& replica = (*world)->communicator(static_cast<ReplicaId>(rank));
  const auto memory = replica.allocate(Bytes{std::int64_t{2} * kBytes});
  if (!memory) {
    leave(rank, entered, memory.error());
  }
  const std::size_t late = (arguments.victim + 1) % ranks;
  for (int i = 0;; ++i) {
    if (i == kFatalCall && rank == arguments.victim) {
      std::thread([] {
        std::this_thread::sleep_for(kDeath);
        ::kill(::getpid(), SIGKILL);
      }).detach();
    }
    if (i == kFatalCall && rank == late) {
      std::this_thread::sleep_for(kLateness);
    }
    entered = Clock::now();
    if (const Status status = call(replica, arguments.kind, *memory); !status) {
      leave(rank, entered, status.error());
    }
  }
}

}  // namespace
}  // namespace poprun

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  if (argc != 4) {
    std::fprintf(stderr, "usage: killed_rank CALL HOSTS VICTIM\n");
    MPI_Abort(MPI_COMM_WORLD, 64);
  }
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  poprun::run({argv[1], std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10)},
              static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks));
}
