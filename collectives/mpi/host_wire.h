#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <mpi.h>

#include "collectives/local/rendezvous.h"
#include "collectives/mpi/host_plan.h"
#include "replica/base/error.h"

namespace poprun::collectives {

/// Waits until all requests are complete. Returns false if they are not complete by `limit`. Polls MPI between short
/// sleeps, because waiting inside MPI would burn a core that other ranks need.
bool complete(std::span<MPI_Request> requests, std::chrono::steady_clock::time_point limit);

/// A process's connection to all other processes, shared by its channels: MPI's communicator, the lock for calling MPI,
/// and the numbers that keep channels apart. Threads: any (see `mutex`).
class MpiLink {
 public:
  using Clock = std::chrono::steady_clock;

  /// Creates the link of a job of `replicas`. Collective over MPI_COMM_WORLD. `last_excuse` returns the time of the
  /// last excuse of any replica. Errors: kInfrastructure if not all processes arrived before `limit`.
  static Result<std::shared_ptr<MpiLink>> create(std::size_t replicas, Clock::time_point limit, LastExcuse last_excuse);

  MpiLink(const MpiLink&) = delete;
  MpiLink& operator=(const MpiLink&) = delete;
  ~MpiLink();

  /// The lock for calling MPI. A thread holds it for a few calls at a time, and never while it sleeps.
  [[nodiscard]] std::mutex& mutex() { return mutex_; }

  [[nodiscard]] MPI_Comm world() const { return world_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] const LastExcuse& last_excuse() const { return last_excuse_; }

  /// The channel of all replicas of the job.
  static constexpr int kAll = 0;

  /// Returns a new channel number, unique over all calls in all processes. Requires: `replica` belongs to this process.
  [[nodiscard]] int new_channel(std::size_t replica) {
    return ++channels_ * static_cast<int>(replicas_) + static_cast<int>(replica);
  }

  /// Records that some transfers remain unfinished, and that MPI therefore cannot close the connection.
  void abandon() { abandoned_ = true; }

 private:
  MpiLink(std::size_t replicas, LastExcuse last_excuse) : replicas_(replicas), last_excuse_(std::move(last_excuse)) {}

  std::size_t replicas_;
  LastExcuse last_excuse_;
  std::mutex mutex_;
  MPI_Comm world_ = MPI_COMM_NULL;
  int rank_ = 0;
  std::atomic<int> channels_{0};
  std::atomic<bool> abandoned_{false};
};

/// One process's share of the transfers between its host and the other hosts. The processes of a host share the work:
/// every transfer between two hosts is cut into one lane per process of the host that has more processes, and on each
/// side, lane i is carried by process i modulo that host's number of processes.
///
///   node0   process 0 ---- lane 0 ---- process 0   node1
///           process 1 ---- lane 1 ---- process 1
///           process 2 ---- lane 2 ---- process 0
///
/// All of a host's processes that take part in a call post the same transfers, and each carries its own lanes. Threads:
/// all calls from one thread. Other channels of the process may run on other threads.
class HostWire {
 public:
  using Clock = std::chrono::steady_clock;

  /// Largest message: Open MPI sends messages below 64 KiB immediately. A larger message waits for a reply, which
  /// queues behind everything that the receiver is sending, so links would carry only one direction at a time.
  static constexpr std::size_t kMessageBytes = std::size_t{60} << 10U;

  /// The bytes to send to one host or to receive from it.
  struct Transfer {
    std::size_t host = 0;
    std::span<std::byte> bytes;  ///< Below 2 GiB.
  };

  enum class Carriers : std::uint8_t {
    kAll,      ///< Every process carries its lanes.
    kLeaders,  ///< Only the first process of each host carries.
  };

  /// `processes` are all processes of the channel, including this one, in replica order. They all pass the same
  /// `channel` number, which must be unique on the link.
  HostWire(std::shared_ptr<MpiLink> link, std::vector<Process> processes, int channel);

  HostWire(const HostWire&) = delete;
  HostWire& operator=(const HostWire&) = delete;
  ~HostWire() = default;

  [[nodiscard]] bool leads() const { return lane_ == 0; }

  /// Begins transfers; several posts may be in progress. The bytes must stay valid until the `wait` for them succeeds.
  /// Requires: both ends post the transfers between them in the same order and with the same sizes. Exception: between
  /// leaders, a single message may be shorter than its receive buffer.
  void post(std::span<const Transfer> outgoing, std::span<const Transfer> incoming, Carriers carriers = Carriers::kAll);

  /// Waits for the oldest pending post. Error messages begin with `call`; `while_waiting` is called regularly.
  /// Requires: a post is pending.
  ///
  /// After `deadline`, counted from the last excuse of any replica (MpiLink), this process asks the hosts whose bytes
  /// are missing whether they are waiting too. It then gives them the time `grace` to answer, or to send the reason why
  /// they give up. If all of them are waiting, it gives them twice this time.
  ///
  /// Errors
  ///   kInfrastructure   bytes are still missing; the message names the replicas of the hosts that did not answer.
  ///   any               an error that another host sent by `tell`.
  /// After an error, the bytes must stay valid until the process ends. MPI_Finalize might never return: exit without
  /// it.
  Status wait(std::chrono::milliseconds deadline, std::chrono::milliseconds grace, const std::string& call,
              const std::function<void()>& while_waiting);

  /// Tells all other hosts that are still listening why this host gives up. If several replicas of a process have a
  /// wire, each of them may call this, not only the replica that carries data.
  void tell(const Error& error);

 private:
  /// A control message between processes.
  struct Notice {
    enum class Kind : std::uint8_t {
      kGivesUp,  ///< The sender gives up with this error.
      kAsks,     ///< The sender asks whether the receiver is waiting too.
      kWaits,    ///< The sender is waiting.
    } kind = Kind::kGivesUp;
    FlatError error{};
  };

  struct Post {
    std::vector<MPI_Request> requests;
    std::vector<std::size_t> peers;  ///< The host of each request.
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
  std::vector<std::vector<std::size_t>> carriers_;  ///< For each host: indices of its processes.
  std::size_t lane_ = 0;                            ///< This process's position among those of its host.
  std::deque<Post> posts_;                          ///< Oldest first.
  std::vector<int> waiting_;                        ///< Ranks that have answered that they are waiting.
};

}  // namespace poprun::collectives
