#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

#include "replica/base/error.h"

namespace poprun::collectives {

/// A process of the job and the replicas that it owns.
struct Member {
  int rank = 0;           ///< In MPI_COMM_WORLD.
  std::size_t first = 0;  ///< Replicas [first, first + count).
  std::size_t count = 0;
};

/// True once all requests are complete, false where they are not at `limit`. Looks at MPI's
/// progress between short sleeps, since MPI's own waiting would burn a core that other ranks need.
bool complete(std::span<MPI_Request> requests, std::chrono::steady_clock::time_point limit);

/// Messages between the processes of a job, everyone with everyone.
///
/// Threads: all calls from one thread at a time, which is the only one of its process inside MPI.
class PeerExchange {
 public:
  /// Collective over MPI_COMM_WORLD. `members` in replica order, `self` an index in it.
  ///
  /// Errors
  ///   kInfrastructure   not all processes came before `limit`.
  static Result<std::unique_ptr<PeerExchange>> create(std::vector<Member> members, std::size_t self,
                                                      std::chrono::steady_clock::time_point limit);

  PeerExchange(const PeerExchange&) = delete;
  PeerExchange& operator=(const PeerExchange&) = delete;
  ~PeerExchange();

  [[nodiscard]] std::span<const Member> members() const { return members_; }
  [[nodiscard]] std::size_t self() const { return self_; }

  /// Sends outgoing[p] to member p and receives incoming[p] from it, for all p; empty spans send
  /// nothing. The entries for this process itself are copied.
  ///
  /// Requires: outgoing[q] of p and incoming[p] of q have equal sizes below 2 GiB.
  /// Errors
  ///   kInfrastructure   messages are missing at `limit`; names the replicas of their processes.
  ///                     The buffers must then stay until the process ends, and MPI_Finalize may
  ///                     not return: leave by exit.
  Status exchange(std::span<const std::span<const std::byte>> outgoing,
                  std::span<const std::span<std::byte>> incoming,
                  std::chrono::steady_clock::time_point limit);

 private:
  PeerExchange(std::vector<Member> members, std::size_t self);

  [[nodiscard]] Error missing(std::span<const std::size_t> peers) const;

  std::vector<Member> members_;
  std::size_t self_;
  MPI_Comm world_ = MPI_COMM_NULL;
  bool failed_ = false;
  std::vector<MPI_Request> requests_;
  std::vector<std::size_t> peers_;  ///< Of each request.
};

}  // namespace poprun::collectives
