#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <sys/types.h>

#include "collectives/session/session.h"
#include "launcher/process/child.h"
#include "launcher/process/process_handle.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// The processes of a job: mpirun, the data server where we started it, and a replica that answers
/// a question. Knows how to end them all, nothing of why. Belongs to the loop's thread.
///
/// This process becomes the one that adopts orphans below it, so that `kill_all` finds everything
/// on this machine even after mpirun died.
class Supervisor {
 public:
  /// `status` is that of waitpid. Comes once, after the last line of the program.
  using OnExit = std::function<void(int status)>;

  explicit Supervisor(asio::io_context& loop);

  /// Errors as Child::start. mpirun ends in order even if this process is killed (guard.h).
  Status start_mpirun(const Child::Program& program, collectives::JobFolder& folder,
                      Child::OnLine on_stdout, Child::OnLine on_stderr, OnExit on_exit);
  Status start_data_server(const Child::Program& program, Child::OnLine on_stdout,
                           Child::OnLine on_stderr, OnExit on_exit);
  Status start_inquiry(const Child::Program& program, Child::OnLine on_stdout,
                       Child::OnLine on_stderr, OnExit on_exit);

  /// Requires: it was started.
  [[nodiscard]] pid_t mpirun_pid() const { return mpirun_.child->pid(); }

  [[nodiscard]] bool anything_runs() const { return mpirun_.runs() || data_server_.runs(); }

  /// Ends mpirun in its own orderly way, which it takes 2 s for: its children are killed
  /// (guard.h), which have nothing left to save. The data server is killed, too.
  void terminate();

  /// Kills the data server alone: it has nothing to save.
  void terminate_data_server();

  /// SIGKILL to everything below this process.
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
  Status start(Process& process, const Child::Program& program, Child::OnLine on_stdout,
               Child::OnLine on_stderr, OnExit on_exit);

  asio::io_context& loop_;
  asio::signal_set exits_;
  asio::steady_timer again_;  ///< To end mpirun.
  Process mpirun_;
  std::optional<ProcessHandle> guard_;  ///< Of mpirun, as long as mpirun runs.
  Process data_server_;
  Process inquiry_;
};

}  // namespace poprun::launcher
