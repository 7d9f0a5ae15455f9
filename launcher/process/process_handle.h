#pragma once

#include <array>
#include <csignal>
#include <string>
#include <vector>

#include <sys/types.h>

#include "replica/base/error.h"

namespace poprun::launcher {

/// Formats the `status` of waitpid: `exited with code 3`, `was killed by signal 9 (SIGKILL)`.
std::string exit_text(int status);

/// Signals that ask this command to do something. scancel, systemd and `kill` may send them to all processes of a job,
/// in any order. Only the launcher obeys them; it ends the other processes when the job no longer needs them.
inline constexpr std::array kRequestSignals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

/// Returns the signals that end this command: SIGTERM and, unless they are ignored, SIGINT, SIGHUP and SIGUSR2. `nohup`
/// starts a command with SIGHUP ignored, and a shell without job control starts background commands with SIGINT
/// ignored. Do not install handlers for ignored signals. SIGUSR2 is Grid Engine's notice before it kills a job.
std::vector<int> ending_signals();

/// Unblocks signals that the parent left blocked, as Python or Java programs may do. With SIGCHLD blocked, the launcher
/// would not notice that mpirun has ended. Call this before any thread is started.
void unblock_signals();

/// Forks with all signals blocked in the child, since our handlers would treat the child's signals as our own.
pid_t fork_with_signals_blocked();

/// A process, identified by the kernel's own descriptor (pidfd_open(2)). Signals never reach a different process, even
/// if this one has ended and its id has been reused. Without a descriptor nothing is signalled, so an error can never
/// send a signal to an id that means "my whole group" or "all processes".
class ProcessHandle {
 public:
  /// Requires: `pid` is an unreaped child of this process, or the caller checks afterwards that this is the intended
  /// process. Errors: kHostResources if there is no such process, or if no descriptor is left; the message says why.
  static Result<ProcessHandle> open(pid_t pid);

  ProcessHandle(ProcessHandle&& other) noexcept;
  ProcessHandle& operator=(ProcessHandle&& other) noexcept;
  ~ProcessHandle();

  [[nodiscard]] int descriptor() const { return descriptor_; }

  /// Sends a signal; does nothing if the process has ended.
  void signal(int number) const;

  /// Waits for the end of a child and reaps it.
  void reap() const;

 private:
  explicit ProcessHandle(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;  ///< -1 after a move.
};

void signal_child_of(pid_t parent, pid_t pid, int number);

}  // namespace poprun::launcher
