#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/ports/communicator.h"

namespace poprun {

namespace collectives {
class MpiLink;
class NodeSegment;
struct HostPlan;
}  // namespace collectives

/// The replicas of a job on the processes of MPI_COMM_WORLD. Each process owns a contiguous block of replicas, one
/// thread per replica. Blocks may differ in size. If all processes are on one host, replicas exchange data through
/// shared memory, and MPI is used only to set it up. On several hosts, the replicas of each host share memory, and the
/// first replica of each process carries data between hosts by MPI. Results are bit-identical to those of LocalWorld.
///
/// Threads: create and destroy it in one thread, between MPI_Init_thread (at least MPI_THREAD_SERIALIZED) and
/// MPI_Finalize. Hand each communicator to one thread, and join those threads before destroying the world. Groups must
/// not outlive the world either. While a collective runs, no other thread of the process may call MPI itself.
class MpiWorld {
 public:
  struct Options {
    std::size_t replicas = 1;                     ///< In the whole job.
    ReplicaId first{};                            ///< This process owns [first, first + local).
    std::size_t local = 1;                        ///< > 0.
    std::chrono::milliseconds deadline{120'000};  ///< Limit of each wait for a peer, also during creation.
    /// Returns the last time that a replica of the job had an excuse, such as a data server that does not answer. The
    /// deadlines of calls count from that time. The function must be thread-safe. It is empty if no replica ever has an
    /// excuse.
    std::function<std::chrono::steady_clock::time_point()> last_excuse{};
    /// Host number of this process; if unset, the machine's own number. For tests that simulate several hosts on one.
    std::optional<std::uint64_t> host;
    /// Bytes of a replica's float32 data that travel between hosts at a time: at least 64 B per replica, at most 1 MiB.
    std::size_t chunk_bytes = std::size_t{1} << 19U;
  };

  /// Creates the world. Collective over MPI_COMM_WORLD.
  ///
  /// Errors
  ///   kHostResources    memory for the exchange could not be allocated; the message says why.
  ///   kUnreachable      memory for the exchange could not be shared; the message says why.
  ///   kInfrastructure   not all processes arrived before the deadline.
  ///   kBug              the processes' blocks do not add up to the job's replicas, or MPI is not initialised.
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
  std::unique_ptr<collectives::NodeSegment> segment_;  ///< Segment of this host.
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

/// Returns the version of MPI, such as "Open MPI v4.1.4".
std::string mpi_version();

}  // namespace poprun
