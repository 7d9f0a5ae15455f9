#include "collectives/mpi/mpi_world.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <string>
#include <type_traits>

#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/local/call.h"
#include "collectives/local/node_communicator.h"
#include "collectives/local/node_segment.h"
#include "collectives/local/rendezvous.h"
#include "collectives/mpi/host_plan.h"
#include "collectives/mpi/host_wire.h"
#include "collectives/mpi/hosts_communicator.h"

namespace poprun {
namespace {

using collectives::FlatError;
using collectives::HostPlan;
using collectives::HostsCommunicator;
using collectives::MpiLink;
using collectives::NodeCommunicator;
using collectives::NodeSegment;
using collectives::Process;
using Clock = std::chrono::steady_clock;

/// The information that every process sends once to all other processes.
struct Introduction {
  std::uint64_t host = 0;
  std::uint64_t replicas = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  collectives::FileAddress memory{};  ///< The segment that a host's first process offers.
  std::uint64_t nonce = 0;
};

/// Returns a number that is the same for processes that can open each other's memory, which requires the same machine,
/// boot and pid namespace. Each container on a machine counts as a separate host.
std::uint64_t host_number() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  std::string identity = name.data();
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  identity += '/' + boot;
  std::uint64_t hash = collectives::kLayoutSeed;
  for (const char letter : identity) {
    hash = collectives::mix_layout(hash, static_cast<unsigned char>(letter));
  }
  struct stat space {};
  return ::stat("/proc/self/ns/pid", &space) == 0 ? collectives::mix_layout(hash, space.st_ino) : hash;
}

Status check_mpi() {
  int ready = 0;
  MPI_Initialized(&ready);
  int level = MPI_THREAD_SINGLE;
  if (ready != 0) {
    MPI_Query_thread(&level);
  }
  if (level < MPI_THREAD_SERIALIZED) {
    return fail(ErrorCode::kBug, "MpiWorld needs MPI_Init_thread with MPI_THREAD_SERIALIZED, but MPI provides level " +
                                     std::to_string(level));
  }
  return {};
}

/// Exchanges `mine` between all processes. Returns the value of each rank, or nothing for ranks that miss `limit`.
template <typename Words>
std::vector<std::optional<Words>> gather(const Words& mine, Clock::time_point limit) {
  using Told = std::optional<Words>;
  static_assert(std::is_trivially_copyable_v<Told>);
  int processes = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  // These are on the heap and are leaked after a timeout, because MPI may still write into them.
  auto sent = std::make_unique<Told>(mine);
  auto all = std::make_unique<std::vector<Told>>(static_cast<std::size_t>(processes));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(sent.get(), sizeof(Told), MPI_BYTE, all->data(), sizeof(Told), MPI_BYTE, MPI_COMM_WORLD, &request);
  // NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): complete() waits.
  if (!collectives::complete(std::span(&request, 1), limit)) {
    static_cast<void>(sent.release());
    return *all.release();
  }
  return std::move(*all);
}

struct Limit {
  std::chrono::milliseconds deadline;
  Clock::time_point end = Clock::now() + deadline;
};

tl::unexpected<Error> late(std::span<const std::size_t> missing, const Limit& limit) {
  Error error = collectives::late_error("start of the exchange", missing, limit.deadline);
  error.message += "; if they are running, MPI cannot reach them from here (see --host-subnet)";
  return tl::unexpected<Error>{std::move(error)};
}

Result<std::vector<Introduction>> introduce(const Introduction& mine, const Limit& limit) {
  const std::vector<std::optional<Introduction>> told = gather(mine, limit.end);
  std::vector<Introduction> all;
  std::vector<std::size_t> missing(mine.replicas);
  std::iota(missing.begin(), missing.end(), std::size_t{0});
  for (const std::optional<Introduction>& its : told) {
    all.push_back(its.value_or(Introduction{}));
    std::erase_if(missing, [&](std::size_t r) { return its && r >= its->first && r - its->first < its->count; });
  }
  const bool complete = std::ranges::all_of(told, [](const auto& its) { return its.has_value(); });
  if (!complete && !missing.empty()) {
    return late(missing, limit);
  }
  return all;
}

/// Returns the processes in replica order; index i of `all` is MPI rank i. Hosts are numbered
/// in the order of their first replicas.
Result<std::vector<Process>> processes_of(std::span<const Introduction> all, std::size_t replicas) {
  std::vector<Process> processes;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].replicas != replicas) {
      return fail(ErrorCode::kBug, "rank " + std::to_string(rank) + " belongs to a job of " +
                                       std::to_string(all[rank].replicas) +
                                       " replicas, but this process belongs to a job of " + std::to_string(replicas));
    }
    processes.push_back({.rank = static_cast<int>(rank), .host = 0, .replicas = {}});
  }
  const auto introduction_of = [&](const Process& process) -> const Introduction& {
    return all[static_cast<std::size_t>(process.rank)];
  };
  std::ranges::sort(processes, {}, [&](const Process& p) { return introduction_of(p).first; });
  std::size_t next = 0;
  std::vector<std::uint64_t> hosts;
  for (Process& process : processes) {
    const Introduction& its = introduction_of(process);
    if (its.first != next || its.count == 0) {
      return fail(ErrorCode::kBug, "rank " + std::to_string(process.rank) + " owns " + std::to_string(its.count) +
                                       " replicas starting at " + std::to_string(its.first) +
                                       "; expected at least one, starting at " + std::to_string(next));
    }
    for (const std::size_t end = next + its.count; next < end; ++next) {
      process.replicas.push_back(next);
    }
    const auto found = std::ranges::find(hosts, its.host);
    process.host = static_cast<std::size_t>(found - hosts.begin());
    if (found == hosts.end()) {
      hosts.push_back(its.host);
    }
  }
  if (next != replicas) {
    return fail(ErrorCode::kBug,
                "the processes own " + std::to_string(next) + " replicas, but the job has " + std::to_string(replicas));
  }
  return processes;
}

/// Creates the segment that a host's first process offers to the host's other processes.
Result<std::unique_ptr<NodeSegment>> offer(bool alone, std::size_t replicas, Bytes wire, Introduction& mine) {
  POPRUN_ASSIGN(auto segment, NodeSegment::create(alone ? NodeSegment::Peers::kThreads : NodeSegment::Peers::kProcesses,
                                                  replicas, wire));
  mine.memory = segment->address();
  mine.nonce = segment->nonce();
  return segment;
}

/// Whether a process has opened its host's shared memory segment and, if not, why.
struct Outcome {
  bool has_memory = true;
  FlatError error{};
};

/// Returns the segment that the host's first process (`owner`) offers; null if it made none. In that process itself,
/// the segment is `offered`.
Result<std::unique_ptr<NodeSegment>> take(Result<std::unique_ptr<NodeSegment>> offered, const Introduction& owner,
                                          std::size_t replicas, Bytes wire) {
  const bool opens = offered && *offered == nullptr && owner.memory.process >= 0;
  return opens ? NodeSegment::open(owner.memory, owner.nonce, replicas, wire) : std::move(offered);
}

/// Checks that all processes have their segment; otherwise all fail for the same reason.
Status check_all_took(const Result<std::unique_ptr<NodeSegment>>& segment, std::span<const Process> processes,
                      const Limit& limit) {
  const std::vector<std::optional<Outcome>> outcomes =
      gather(segment ? Outcome{} : Outcome{.has_memory = false, .error = FlatError(segment.error())}, limit.end);
  std::vector<std::size_t> missing;
  for (const Process& process : processes) {
    const std::optional<Outcome>& its = outcomes[static_cast<std::size_t>(process.rank)];
    if (!its) {
      missing.insert(missing.end(), process.replicas.begin(), process.replicas.end());
    } else if (!its->has_memory) {
      Error error = its->error.error();
      error.message = collectives::replica_list(process.replicas) + ": " + error.message;
      return tl::unexpected<Error>{std::move(error)};
    }
  }
  return missing.empty() ? Status{} : late(missing, limit);
}

}  // namespace

MpiWorld::MpiWorld(const Options& options) : options_(options) {}

MpiWorld::~MpiWorld() = default;

Result<std::unique_ptr<MpiWorld>> MpiWorld::create(const Options& options) {
  POPRUN_CHECK(options.local > 0);
  POPRUN_TRY(check_mpi());
  const Limit limit{options.deadline};
  int processes = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &processes);

  // Replica 0's process offers memory before it knows whether all processes can use it, which saves a round trip.
  Introduction mine{.host = options.host.value_or(host_number()),
                    .replicas = options.replicas,
                    .first = index_of(options.first),
                    .count = options.local};
  Result<std::unique_ptr<NodeSegment>> segment = nullptr;
  if (mine.first == 0) {
    segment = offer(processes == 1, options.replicas, Bytes{0}, mine);
  }
  POPRUN_ASSIGN(std::vector<Introduction> all, introduce(mine, limit));
  POPRUN_ASSIGN(std::vector<Process> members, processes_of(all, options.replicas));
  const auto rank_of = [](const Process& process) { return static_cast<std::size_t>(process.rank); };

  std::unique_ptr<MpiWorld> world(new MpiWorld(options));
  if (std::ranges::all_of(members, [](const Process& process) { return process.host == 0; })) {
    segment = take(std::move(segment), all[rank_of(members[0])], options.replicas, Bytes{0});
    POPRUN_TRY(check_all_took(segment, members, limit));
    world->speak_on_one_host(std::move(*segment));
    return world;
  }

  const auto self =
      std::ranges::find(members, mine.first, [](const Process& process) { return process.replicas.front(); });
  const std::size_t host = self->host;
  const auto first_here = std::ranges::find(members, host, &Process::host);
  const bool alone = std::ranges::count(members, host, &Process::host) == 1;
  const auto plan = std::make_shared<const HostPlan>(members, host);
  const std::size_t replicas = plan->replicas[host].size();
  const Bytes wire_bytes = HostsCommunicator::wire_bytes(*plan);
  segment = nullptr;
  if (self == first_here) {
    segment = offer(alone, replicas, wire_bytes, mine);
  }
  POPRUN_ASSIGN(all, introduce(mine, limit));
  segment = take(std::move(segment), all[rank_of(*first_here)], replicas, wire_bytes);
  POPRUN_TRY(check_all_took(segment, members, limit));
  POPRUN_ASSIGN(auto link, MpiLink::create(options.replicas, limit.end, options.last_excuse));
  world->speak_between_hosts(std::move(*segment), plan, link);
  return world;
}

void MpiWorld::speak_on_one_host(std::unique_ptr<NodeSegment> segment) {
  segment_ = std::move(segment);
  segment_->close_files();
  const std::size_t first = index_of(options_.first);
  for (std::size_t i = 0; i < options_.local; ++i) {
    communicators_.push_back(
        std::make_unique<NodeCommunicator>(*segment_, NodeCommunicator::Options{.self = first + i,
                                                                                .process_leader = first,
                                                                                .deadline = options_.deadline,
                                                                                .last_excuse = options_.last_excuse}));
  }
}

void MpiWorld::speak_between_hosts(std::unique_ptr<NodeSegment> segment, const std::shared_ptr<const HostPlan>& plan,
                                   const std::shared_ptr<MpiLink>& link) {
  segment_ = std::move(segment);
  segment_->close_files();
  const std::vector<std::size_t>& here = plan->replicas[plan->self];
  const auto first =
      static_cast<std::size_t>(std::ranges::lower_bound(here, std::size_t{index_of(options_.first)}) - here.begin());
  for (std::size_t i = 0; i < options_.local; ++i) {
    communicators_.push_back(
        std::make_unique<HostsCommunicator>(*segment_, plan, link, MpiLink::kAll,
                                            HostsCommunicator::Options{.local = first + i,
                                                                       .process_leader = first,
                                                                       .deadline = options_.deadline,
                                                                       .chunk_bytes = options_.chunk_bytes}));
  }
}

Communicator& MpiWorld::communicator(ReplicaId replica) {
  const std::size_t local = index_of(replica) - index_of(options_.first);
  POPRUN_CHECK(local < communicators_.size());
  return *communicators_[local];
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version(text, static_cast<std::size_t>(length));
  return version.substr(0, version.find(','));
}

}  // namespace poprun
