#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <asio/io_context.hpp>

#include "launcher/job/data_service.h"
#include "launcher/options/options.h"
#include "launcher/placement/placement.h"
#include "launcher/screen/console.h"
#include "launcher/wire/security.h"

namespace poprun::launcher {

/// The processes of a job on this machine: mpirun and usually the data server. An interface, so that tests can simulate
/// the processes (world.h). Objects belong to the loop's thread.
class JobProcesses {
 public:
  struct Events {
    std::function<void(std::string_view line, bool is_stderr)> on_mpirun_line;
    std::function<void(int status)> on_mpirun_exit;
    /// Called once. Errors: those of DataService.
    std::function<void(const Result<ServedDataset>&)> on_dataset;
    std::function<void(int status)> on_data_server_exit;  ///< Called only after `on_dataset`.
  };

  /// Returns real processes. All references must outlive them; `security` must be complete when `start` is called.
  static std::unique_ptr<JobProcesses> real(asio::io_context& loop, const Options& options, const Placement& placement,
                                            Console& console, const Security& security, Events events);

  JobProcesses() = default;
  JobProcesses(const JobProcesses&) = delete;
  JobProcesses& operator=(const JobProcesses&) = delete;
  virtual ~JobProcesses() = default;

  /// Removes what dead jobs left behind on this machine, and checks that the machine has what the job needs. Errors:
  /// those of find_programs, check_room_for_mpi_session and JobFolder::make.
  virtual Status check() = 0;

  /// Starts both processes at the same time, so that the dataset is usually known before mpirun's ranks ask for it.
  /// Passes the coordinator's port and epoch on to the replicas. Requires: `check` has succeeded. Errors: those of
  /// Child::start.
  virtual Status start(int coordinator_port, std::uint64_t epoch) = 0;

  /// Checks that this version of mpirun is supported. Call this only after mpirun has failed to start anything, because
  /// the check itself starts a program. Errors: those of check_mpirun_program.
  [[nodiscard]] virtual Status check_mpirun() const = 0;

  /// Call this when a replica has joined. By then, mpirun has a session, which the job's folder records for removal.
  virtual void replicas_run() = 0;

  [[nodiscard]] virtual bool any_run() const = 0;

  /// Returns the command line that restarts our data server at its address. The command reads the token from a file
  /// that only this user can read, since a printed token would end up in logs. Requires: our own server was queried.
  [[nodiscard]] virtual std::string restart_command() const = 0;

  /// Terminates both processes and cancels the dataset query.
  virtual void terminate() = 0;
  virtual void kill() = 0;
  /// Kills the remaining processes and removes what they left behind.
  virtual void clear_away() = 0;
};

/// Finds out which of `hosts` are down or cut off. These are the hosts whose ssh port neither accepts nor refuses a
/// connection within `patience`, and those whose name has no IPv4 address. All hosts are tried at the same time. `loop`
/// calls `then` once, as soon as all hosts have answered or `patience` has expired.
void find_silent_hosts(asio::io_context& loop, std::vector<std::string> hosts, std::chrono::milliseconds patience,
                       std::function<void(std::vector<std::string> silent)> then);

}  // namespace poprun::launcher
