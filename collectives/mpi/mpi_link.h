#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include <mpi.h>

#include "collectives/local/rendezvous.h"
#include "replica/base/error.h"

namespace poprun::collectives {

/// Returns true once all requests are complete, false if they are not by `limit`. Polls MPI between
/// short sleeps, since waiting inside MPI would burn a core that other ranks need.
bool complete(std::span<MPI_Request> requests, std::chrono::steady_clock::time_point limit);

/// A process's connection to the others, shared by all its channels: MPI's communicator, the lock
/// for calling MPI, and the numbers that keep channels apart.
///
/// Threads: any, see `mutex`.
class MpiLink {
 public:
  using Clock = std::chrono::steady_clock;

  /// Collective over MPI_COMM_WORLD, for a job of `replicas`. `last_excuse` returns the last excuse
  /// of any replica.
  ///
  /// Errors
  ///   kInfrastructure   not all processes arrived before `limit`.
  static Result<std::shared_ptr<MpiLink>> create(std::size_t replicas, Clock::time_point limit,
                                                 LastExcuse last_excuse);

  MpiLink(const MpiLink&) = delete;
  MpiLink& operator=(const MpiLink&) = delete;
  ~MpiLink();

  /// Held for a few calls to MPI at a time, never while a thread sleeps.
  [[nodiscard]] std::mutex& mutex() { return mutex_; }

  [[nodiscard]] MPI_Comm world() const { return world_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] const LastExcuse& last_excuse() const { return last_excuse_; }

  /// The channel of all replicas of the job.
  static constexpr int kAll = 0;

  /// A number for a new channel, unique over all calls in all processes. Requires: `replica` is one
  /// of this process.
  [[nodiscard]] int new_channel(std::size_t replica) {
    return ++channels_ * static_cast<int>(replicas_) + static_cast<int>(replica);
  }

  /// Records that transfers stay unfinished, so that MPI cannot close the connection.
  void abandon() { abandoned_ = true; }

 private:
  MpiLink(std::size_t replicas, LastExcuse last_excuse)
      : replicas_(replicas), last_excuse_(std::move(last_excuse)) {}

  std::size_t replicas_;
  LastExcuse last_excuse_;
  std::mutex mutex_;
  MPI_Comm world_ = MPI_COMM_NULL;
  int rank_ = 0;
  std::atomic<int> channels_{0};
  std::atomic<bool> abandoned_{false};
};

}  // namespace poprun::collectives
