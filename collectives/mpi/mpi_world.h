#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/ids.h"
#include "replica/ports/communicator.h"

namespace poprun {

namespace collectives {
class MpiLink;
class NodeSegment;
struct HostPlan;
}  // namespace collectives

/// The replicas of a job whose processes are those of MPI_COMM_WORLD. Each process owns a
/// contiguous block of replicas, one thread each; blocks may differ in size.
///
/// Where all processes are on one host, replicas exchange through shared memory and MPI serves only
/// to find it. On several hosts the replicas of each share memory, and the first replica of each
/// process carries between hosts by MPI. Results are bit for bit those of LocalWorld.
///
/// Threads: create it and end it in one thread, between MPI_Init_thread (MPI_THREAD_SERIALIZED at
/// least) and MPI_Finalize. Hand each communicator to one thread, and join them before the world
/// ends; groups end before it too. While a collective runs no other thread of the process may call
/// MPI on its own.
class MpiWorld {
 public:
  struct Options {
    std::size_t replicas = 1;                     ///< In the whole job.
    ReplicaId first{};                            ///< This process owns [first, first + local).
    std::size_t local = 1;                        ///< > 0.
    std::chrono::milliseconds deadline{120'000};  ///< For each wait for a peer, creation included;
    /// but calls wait at least that long after a replica of the job last had an excuse, such as a
    /// data server that does not answer it. Thread-safe; empty: nobody ever has one.
    std::function<std::chrono::steady_clock::time_point()> last_excuse{};
    /// Which host this process is on, as a number, instead of asking the machine. For tests that
    /// play several hosts on one.
    std::optional<std::uint64_t> host;
    /// Bytes of one replica's float32 data that cross between hosts at a time. At least 64 B a
    /// replica, at most 1 MiB.
    std::size_t chunk_bytes = std::size_t{1} << 19U;
  };

  /// Collective over MPI_COMM_WORLD.
  ///
  /// Errors
  ///   kHostResources    memory for the exchange could not be had; says why.
  ///   kUnreachable      memory for the exchange could not be shared; says why.
  ///   kInfrastructure   not all processes came before the deadline.
  ///   kBug              the processes' blocks are not the job's replicas; MPI is not initialised.
  static Result<std::unique_ptr<MpiWorld>> create(const Options& options);

  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;
  ~MpiWorld();

  /// Requires: this process owns `replica`.
  Communicator& communicator(ReplicaId replica);

 private:
  explicit MpiWorld(const Options& options);

  void speak_on_one_host(std::unique_ptr<collectives::NodeSegment> segment);
  void speak_between_hosts(std::unique_ptr<collectives::NodeSegment> segment,
                           const std::shared_ptr<const collectives::HostPlan>& plan,
                           const std::shared_ptr<collectives::MpiLink>& link);

  Options options_;
  std::unique_ptr<collectives::NodeSegment> segment_;  ///< This host's.
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

}  // namespace poprun
