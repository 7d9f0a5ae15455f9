#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <asio/io_context.hpp>

#include "collectives/session/session.h"
#include "launcher/job/data_service.h"
#include "launcher/options/options.h"
#include "launcher/placement/placement.h"
#include "launcher/process/supervisor.h"
#include "launcher/screen/console.h"
#include "launcher/wire/security.h"

namespace poprun::launcher {

/// The processes of a job on this machine: mpirun and usually the data server. This class belongs to the loop's thread.
class JobProcesses {
 public:
  struct Events {
    std::function<void(std::string_view line, bool is_stderr)> on_mpirun_line;
    std::function<void(int status)> on_mpirun_exit;
    /// Called once. Errors: those of DataService.
    std::function<void(const Result<ServedDataset>&)> on_dataset;
    std::function<void(int status)> on_data_server_exit;  ///< Called only after `on_dataset`.
  };

  /// All references must outlive this.
  JobProcesses(asio::io_context& loop, const Options& options, const Placement& placement, Console& console,
               const Security& security, Events events);

  /// Removes what dead jobs left behind on this machine, and checks that the machine has what the job needs. Errors:
  /// those of find_programs, check_room_for_mpi_session and JobFolder::make.
  Status check();

  /// Starts both processes at the same time. Usually, the dataset is therefore known before mpirun's ranks ask for it.
  /// Requires: `check` has succeeded. Errors: those of Child::start.
  Status start(int coordinator_port);

  /// Checks that this version of mpirun is supported. Since the check has to start a program, make it only after mpirun
  /// has failed to start anything. Errors: those of check_mpirun_program.
  [[nodiscard]] Status check_mpirun() const { return check_mpirun_program(programs_.mpirun); }

  [[nodiscard]] const std::string& own_address() const { return own_address_; }

  [[nodiscard]] std::string listens_at() const { return listening_address(own_address_); }
  /// Returns whether other hosts can reach these services, in which case the services use TLS.
  [[nodiscard]] bool services_leave_loopback() const { return leaves_loopback(listens_at() + ":"); }

  /// Call this when a replica has joined. By then, mpirun has a session, and the job's folder records what to remove.
  void replicas_run() { folder_->learn(); }

  [[nodiscard]] bool any_run() const { return supervisor_.anything_runs(); }

  /// Returns the command line that restarts our data server at its address. The command reads the token from a file
  /// that only this user can read, since a printed token would end up in logs. Requires: our own server was queried.
  [[nodiscard]] std::string restart_command() const;

  /// Terminates both processes and cancels the dataset query.
  void terminate();
  void kill() { supervisor_.kill_all(); }
  /// Kills the remaining processes and removes what they left behind.
  void clear_away();

 private:
  Status start_mpirun(int coordinator_port);
  Status start_data_service();

  asio::io_context& loop_;
  const Options& options_;
  const Placement& placement_;
  Console& console_;
  const Security& security_;  ///< Complete by the time that `start` is called.
  std::string own_address_;
  Events events_;
  collectives::SessionPlace place_;               ///< Place of the session folder on this machine.
  std::optional<collectives::JobFolder> folder_;  ///< Set by `check`.
  Supervisor supervisor_;
  Programs programs_;
  std::optional<DataService> data_;  ///< Set by `start`.
};

/// Finds out which of `hosts` are down or cut off. These are the hosts whose ssh port neither accepts nor refuses a
/// connection within `patience`, and those whose name has no IPv4 address. All hosts are tried at the same time. `loop`
/// calls `then` once, as soon as all hosts have answered or `patience` has expired.
void find_silent_hosts(asio::io_context& loop, std::vector<std::string> hosts, std::chrono::milliseconds patience,
                       std::function<void(std::vector<std::string> silent)> then);

}  // namespace poprun::launcher
