#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

#include "replica/base/error.h"

namespace poprun::collectives {

/// A process of the job: its rank in MPI_COMM_WORLD, its host, its replicas [first, first + count).
struct Process {
  int rank = 0;
  std::size_t host = 0;
  std::size_t first = 0;
  std::size_t count = 0;
};

/// True once all requests are complete, false where they are not at `limit`. Looks at MPI's
/// progress between short sleeps, since MPI's own waiting would burn a core that other ranks need.
bool complete(std::span<MPI_Request> requests, std::chrono::steady_clock::time_point limit);

/// What one process carries between its host and the others. The processes of a host share the
/// work: every transfer between two hosts is cut into as many lanes as the larger of them has
/// processes, and lane i is carried by process i (modulo their number) on both.
///
///   node0   process 0 ---- lane 0 ---- process 0   node1
///           process 1 ---- lane 1 ---- process 1
///           process 2 ---- lane 2 ---- process 0
///
/// All processes of a host that call the same post the same transfers, and each carries its lanes.
///
/// Threads: all calls from one thread, which is the only one of its process inside MPI.
class HostWire {
 public:
  using Clock = std::chrono::steady_clock;

  /// What goes to a host or comes from it.
  struct Transfer {
    std::size_t host = 0;
    std::span<std::byte> bytes;  ///< Below 2 GiB.
  };

  enum class Carriers : std::uint8_t {
    kAll,      ///< Every process its lanes.
    kLeaders,  ///< The first process of each host alone.
  };

  /// Collective over MPI_COMM_WORLD. `processes` in the order of their replicas, `self` an index
  /// in it; hosts are numbered from 0 without gaps.
  ///
  /// Errors
  ///   kInfrastructure   not all processes came before `limit`.
  static Result<std::unique_ptr<HostWire>> create(std::vector<Process> processes, std::size_t self,
                                                  Clock::time_point limit);

  HostWire(const HostWire&) = delete;
  HostWire& operator=(const HostWire&) = delete;
  ~HostWire();

  [[nodiscard]] bool leads() const { return lane_ == 0; }

  /// Begins transfers; several posts may be under way. The bytes must stay until `wait` for them
  /// succeeds.
  /// Requires: both ends post the transfers between them in the same order, with equal sizes.
  void post(std::span<const Transfer> outgoing, std::span<const Transfer> incoming,
            Carriers carriers = Carriers::kAll);

  /// Waits for the oldest post that was not waited for, as long as `patience`. `call` begins the
  /// message of an error. Requires: there is one.
  ///
  /// Errors
  ///   kInfrastructure   bytes are missing by then; names the replicas of their hosts.
  ///   any               what another host told by `tell`.
  ///   The bytes must then stay until the process ends, and MPI_Finalize may not return: leave by
  ///   exit.
  Status wait(std::chrono::milliseconds patience, const std::string& call);

  /// Tells all other hosts why this one gives up, as far as they still listen.
  void tell(const Error& error);

 private:
  /// Why a host gives up, as it travels.
  struct Notice {
    ErrorCode code{};
    char message[1000]{};  ///< Ends with 0; cut where the message is longer.
  };

  struct Post {
    std::vector<MPI_Request> requests;
    std::vector<std::size_t> peers;  ///< Host of each request.
  };

  HostWire(std::vector<Process> processes, std::size_t self);

  [[nodiscard]] std::size_t lanes(std::size_t host, Carriers carriers) const;
  [[nodiscard]] bool heard(Error& error);
  [[nodiscard]] std::vector<std::size_t> missing(Post& post) const;

  std::vector<Process> processes_;
  std::size_t self_;
  std::vector<std::vector<std::size_t>> carriers_;  ///< By host, indices of processes.
  std::size_t lane_ = 0;                            ///< Of this process among those of its host.
  MPI_Comm world_ = MPI_COMM_NULL;
  bool failed_ = false;
  std::deque<Post> posts_;  ///< The oldest first.
};

}  // namespace poprun::collectives
