#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/ids.h"
#include "replica/ports/communicator.h"

namespace poprun {

namespace collectives {
class NodeSegment;
class SpreadProcess;
}  // namespace collectives

/// The replicas of a job whose processes are those of MPI_COMM_WORLD. Each process owns a
/// contiguous block of replicas, one thread each; blocks may differ in size.
///
/// Where all processes are on one host, replicas exchange through shared memory and MPI serves only
/// to find it. Elsewhere the first replica of each process speaks MPI for all of them. Results are
/// bit for bit those of LocalWorld.
///
/// Threads: create it and end it in one thread, between MPI_Init_thread (MPI_THREAD_SERIALIZED at
/// least) and MPI_Finalize. Hand each communicator to one thread, and join them before the world
/// ends. While a collective runs no other thread of the process may be inside MPI.
class MpiWorld {
 public:
  struct Options {
    std::size_t replicas = 1;                     ///< Of the job.
    ReplicaId first{};                            ///< This process owns [first, first + local).
    std::size_t local = 1;                        ///< > 0.
    std::chrono::milliseconds deadline{120'000};  ///< For each wait for a peer, creation included.
    /// Which host this process is on, as a number, instead of asking the machine. For tests that
    /// play several hosts on one.
    std::optional<std::uint64_t> host;
  };

  /// Collective over MPI_COMM_WORLD.
  ///
  /// Errors
  ///   kUnreachable      memory for the exchange could not be had or shared; says why.
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

  void speak_through_memory(std::unique_ptr<collectives::NodeSegment> segment);
  void speak_through_messages(std::unique_ptr<collectives::SpreadProcess> process);

  Options options_;
  std::unique_ptr<collectives::NodeSegment> segment_;    ///< Of one host, or
  std::unique_ptr<collectives::SpreadProcess> process_;  ///< of several.
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

}  // namespace poprun
