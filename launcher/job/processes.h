#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <asio/io_context.hpp>

#include "collectives/session/session.h"
#include "launcher/job/data_service.h"
#include "launcher/options/options.h"
#include "launcher/placement/placement.h"
#include "launcher/process/supervisor.h"
#include "launcher/screen/console.h"
#include "launcher/wire/security.h"

namespace poprun::launcher {

/// What a job runs on this machine: mpirun, and the data server unless it has one elsewhere.
/// Belongs to the loop's thread.
class JobProcesses {
 public:
  struct Events {
    std::function<void(std::string_view line, bool is_stderr)> on_mpirun_line;
    std::function<void(int status)> on_mpirun_exit;
    /// Comes once. Errors: those of DataService.
    std::function<void(const Result<ServedDataset>&)> on_dataset;
    std::function<void(int status)> on_data_server_exit;  ///< After the dataset came.
  };

  /// All references must outlive this.
  JobProcesses(asio::io_context& loop, const Options& options, const Placement& placement,
               Console& console, const Security& security, Events events);

  /// Removes what dead jobs left on this machine, and looks whether it has what a job takes.
  ///
  /// Errors: those of find_programs, check_room_for_mpi_session and JobFolder::make.
  Status check();

  /// Starts both, side by side: the dataset is usually known before mpirun's ranks ask for it.
  /// Requires: `check` passed.
  ///
  /// Errors: those of Child::start.
  Status start(int coordinator_port);

  /// Whether mpirun is one that we can use, asked once it has failed to start anything: it costs
  /// the start of a program. Errors: those of check_mpirun_program.
  [[nodiscard]] Status check_mpirun() const { return check_mpirun_program(programs_.mpirun); }

  /// The address at which other hosts reach this machine.
  [[nodiscard]] const std::string& own_address() const { return own_address_; }

  /// The address at which the services of the job listen.
  [[nodiscard]] std::string listens_at() const { return listening_address(own_address_); }

  /// A replica has joined: mpirun has its session, which tells what to remove at the end.
  void replicas_run() { folder_->learn(); }

  [[nodiscard]] bool any_run() const { return supervisor_.anything_runs(); }

  /// The command line that starts our data server again at its address. It takes the token from
  /// where nobody else reads it, for a printed one would end up in logs. Requires: ours was asked.
  [[nodiscard]] std::string restart_command() const;

  /// Ends both, and asks for the dataset no more.
  void terminate();
  /// SIGKILL to everything below this process.
  void kill() { supervisor_.kill_all(); }
  /// Kills what is left and removes what it left.
  void clear_away();

 private:
  Status start_mpirun(int coordinator_port);
  Status start_data_service();

  asio::io_context& loop_;
  const Options& options_;
  const Placement& placement_;
  Console& console_;
  const Security& security_;  ///< Known when `start` is called.
  std::string own_address_;
  Events events_;
  collectives::SessionPlace place_;               ///< On this machine.
  std::optional<collectives::JobFolder> folder_;  ///< Once it was checked.
  Supervisor supervisor_;
  Programs programs_;
  std::optional<DataService> data_;  ///< From the start on.
};

}  // namespace poprun::launcher
