#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <sys/types.h>

#include "collectives/session/session.h"
#include "launcher/process/child.h"
#include "launcher/process/process_handle.h"
#include "replica/base/error.h"

namespace poprun::launcher {

struct Programs {
  std::string replica;  ///< In the folder of our own executable, as is `data_server`.
  std::string data_server;
  std::string mpirun;  ///< Found in PATH.
};

/// Finds the programs. If `other_hosts` is true, also checks that the script between mpirun and ssh exists. Errors:
/// kHostResources if a program is missing; the message says where it should be or what to install.
Result<Programs> find_programs(bool other_hosts);

/// Returns the path of the program of this name that a shell would run, or nothing if no folder of PATH contains it.
std::optional<std::string> in_path(const std::string& program);

/// Runs `mpirun --version` and checks the result. Errors: kHostResources if the program does not belong to Open MPI 4;
/// the message states the version found and the one needed.
Status check_mpirun_program(const std::string& mpirun);

/// Checks the version in `answer`, which `mpirun --version` printed. Errors: the same as for check_mpirun_program.
Status check_mpirun_version(const std::string& mpirun, const std::string& answer);

/// Returns the path of one of our programs, whether or not it exists. Used for --dry-run and inquiries.
std::string path_beside_us(const std::string& program);

/// The processes of a job: mpirun, the data server if we started it, and a replica that answers a question. The
/// supervisor can end all of them; its callers decide when. It belongs to the loop's thread. This process adopts
/// orphans among its descendants, so that `kill_all` finds everything on this machine even after mpirun has died.
class Supervisor {
 public:
  /// Called once, after the program's last line of output. `status` is from waitpid.
  using OnExit = std::function<void(int status)>;

  explicit Supervisor(asio::io_context& loop);

  /// Each of these starts a process. Errors: those of Child::start. mpirun cleans up even if we are killed
  /// (start_guard).
  Status start_mpirun(const Child::Program& program, collectives::JobFolder& folder, Child::OnLine on_stdout,
                      Child::OnLine on_stderr, OnExit on_exit);
  Status start_data_server(const Child::Program& program, Child::OnLine on_stdout, Child::OnLine on_stderr,
                           OnExit on_exit);
  Status start_inquiry(const Child::Program& program, Child::OnLine on_stdout, Child::OnLine on_stderr, OnExit on_exit);

  /// Returns mpirun's process id. Requires: mpirun was started.
  [[nodiscard]] pid_t mpirun_pid() const { return mpirun_.child->pid(); }

  [[nodiscard]] bool anything_runs() const { return mpirun_.runs() || data_server_.runs(); }

  /// Makes mpirun clean up and end, which takes 2 s: kills mpirun's children (kill_children), which have nothing left
  /// to save. Also kills the data server.
  void terminate();

  /// Sends SIGKILL to all descendants of this process.
  void kill_all();

 private:
  struct Process {
    std::unique_ptr<Child> child;
    OnExit on_exit;
    bool ended = false;

    [[nodiscard]] bool runs() const { return child != nullptr && !ended; }
  };

  void wait_for_exits();
  void reap();
  void end_guard();
  void end_mpirun();
  Status start(Process& process, const Child::Program& program, Child::OnLine on_stdout, Child::OnLine on_stderr,
               OnExit on_exit);

  asio::io_context& loop_;
  asio::signal_set exits_;
  asio::steady_timer again_;  ///< Repeats the steps that end mpirun.
  Process mpirun_;
  std::optional<ProcessHandle> guard_;  ///< The guard of mpirun; set while mpirun runs.
  Process data_server_;
  Process inquiry_;
};

}  // namespace poprun::launcher
