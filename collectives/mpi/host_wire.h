#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

#include "collectives/local/flat_error.h"
#include "collectives/mpi/host_plan.h"
#include "collectives/mpi/mpi_link.h"
#include "replica/base/error.h"

namespace poprun::collectives {

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
/// Threads: all calls from one thread. Other channels of the process may run on other threads.
class HostWire {
 public:
  using Clock = std::chrono::steady_clock;

  /// Largest message: Open MPI sends those below 64 KiB at once. A larger one waits for a reply,
  /// and that for all that its sender is sending in turn: links would carry one direction at a
  /// time.
  static constexpr std::size_t kMessageBytes = std::size_t{60} << 10U;

  /// What goes to a host or comes from it.
  struct Transfer {
    std::size_t host = 0;
    std::span<std::byte> bytes;  ///< Below 2 GiB.
  };

  enum class Carriers : std::uint8_t {
    kAll,      ///< Every process its lanes.
    kLeaders,  ///< The first process of each host alone.
  };

  /// `processes` of the channel in the order of their replicas, this one among them. All name the
  /// same `channel`, which no other channel of the link has.
  HostWire(std::shared_ptr<MpiLink> link, std::vector<Process> processes, int channel);

  HostWire(const HostWire&) = delete;
  HostWire& operator=(const HostWire&) = delete;
  ~HostWire() = default;

  [[nodiscard]] bool leads() const { return lane_ == 0; }

  /// Begins transfers; several posts may be under way. The bytes must stay until `wait` for them
  /// succeeds.
  /// Requires: both ends post the transfers between them in the same order, with equal sizes; from
  /// leaders what is one message may be shorter than what it comes into.
  void post(std::span<const Transfer> outgoing, std::span<const Transfer> incoming,
            Carriers carriers = Carriers::kAll);

  /// Waits for the oldest post that was not waited for. `call` begins the message of an error;
  /// `while_waiting` is called all the time. Requires: there is one.
  ///
  /// After `deadline`, counted from the last excuse that a replica of the job had (MpiLink), it
  /// asks the hosts whose bytes are missing whether they wait too, and for `grace` listens to what
  /// they answer, or why they give up; as long again where all of them do.
  ///
  /// Errors
  ///   kInfrastructure   bytes are missing by then; names the replicas of the hosts that did not
  ///                     answer.
  ///   any               what another host told by `tell`.
  ///   The bytes must then stay until the process ends, and MPI_Finalize may not return: leave by
  ///   exit.
  Status wait(std::chrono::milliseconds deadline, std::chrono::milliseconds grace,
              const std::string& call, const std::function<void()>& while_waiting);

  /// Tells all other hosts why this one gives up, as far as they still listen. Where several
  /// replicas of a process have a wire, each may, whichever carries.
  void tell(const Error& error);

 private:
  /// What processes tell one another beside the data.
  struct Notice {
    enum class Kind : std::uint8_t {
      kGivesUp,  ///< By this error.
      kAsks,     ///< Whether the other one waits too,
      kWaits,    ///< and it does.
    } kind = Kind::kGivesUp;
    FlatError error{};
  };

  struct Post {
    std::vector<MPI_Request> requests;
    std::vector<std::size_t> peers;  ///< Host of each request.
  };

  [[nodiscard]] std::size_t lanes(std::size_t host, Carriers carriers) const;
  [[nodiscard]] int tag() const { return 2 * channel_; }
  [[nodiscard]] int notice_tag() const { return 2 * channel_ + 1; }
  [[nodiscard]] bool all_done(std::span<MPI_Request> requests);
  [[nodiscard]] bool heard(Error& error);
  MPI_Request send(const Notice& notice, int rank);
  void ask(Post& post);
  [[nodiscard]] std::vector<std::size_t> late_hosts(Post& post) const;
  [[nodiscard]] std::vector<std::size_t> replicas_of(std::span<const std::size_t> hosts) const;
  [[nodiscard]] std::vector<std::size_t> silent(std::span<const std::size_t> hosts) const;

  std::shared_ptr<MpiLink> link_;
  std::vector<Process> processes_;
  int channel_;
  std::size_t self_ = 0;                            ///< Index of this process.
  std::vector<std::vector<std::size_t>> carriers_;  ///< By host, indices of processes.
  std::size_t lane_ = 0;      ///< This process's place among those of its host.
  std::deque<Post> posts_;    ///< The oldest first.
  std::vector<int> waiting_;  ///< Ranks that said so since we asked.
};

}  // namespace poprun::collectives
