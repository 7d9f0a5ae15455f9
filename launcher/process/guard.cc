#include "launcher/process/guard.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "collectives/session/children.h"
#include "launcher/process/signals.h"

namespace poprun::launcher {
namespace {

// Replicas that joined leave a dead launcher at once, and mpirun ends with them; only those that
// are still starting have to be ended.
constexpr std::chrono::milliseconds kByItself{3000};
constexpr std::chrono::milliseconds kInOrder{5000};

/// Whether it did within `patience`.
bool ends(const ProcessHandle& process, std::chrono::milliseconds patience) {
  pollfd end{.fd = process.descriptor(), .events = POLLIN, .revents = 0};
  return poll(&end, 1, static_cast<int>(patience.count())) != 0;
}

/// The life of the guard. Only calls that are safe after the fork of a process with threads, which
/// glibc's allocation of memory is.
[[noreturn]] void keep_watch(pid_t launcher, pid_t pid, const ProcessHandle& mpirun,
                             collectives::JobFolder& folder) {
  setsid();  // Whoever signals the launcher's group or closes its terminal does not mean us.
  prctl(PR_SET_NAME, "poprun-guard");
  sigset_t death;
  sigemptyset(&death);
  sigaddset(&death, SIGTERM);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // The launcher's sockets must close with it, or replicas do not see it die.
  const auto [first, second] = std::minmax(
      {static_cast<unsigned>(mpirun.descriptor()), static_cast<unsigned>(folder.descriptor())});
  close_range(0, first - 1, 0);
  if (second > first + 1) {
    close_range(first + 1, second - 1, 0);
  }
  close_range(second + 1, std::numeric_limits<unsigned>::max(), 0);
  while (getppid() == launcher) {
    sigwaitinfo(&death, nullptr);
  }
  bool ended = ends(mpirun, kByItself);
  for (auto left = kInOrder; !ended && left.count() > 0; left -= kKillAgain) {
    kill_children(pid);
    ended = ends(mpirun, kKillAgain);
  }
  if (!ended) {
    mpirun.signal(SIGKILL);
  }
  folder.remove();
  _exit(0);
}

}  // namespace

Result<ProcessHandle> start_guard(pid_t mpirun, collectives::JobFolder& folder) {
  POPRUN_ASSIGN(const ProcessHandle watched, ProcessHandle::open(mpirun));
  const pid_t launcher = getpid();
  const pid_t guard = fork_with_signals_blocked();
  if (guard == 0) {
    keep_watch(launcher, mpirun, watched, folder);
  }
  if (guard < 0) {
    return fail(
        ErrorCode::kHostResources,
        fmt::format(
            "cannot start the process that guards mpirun: {}; check ulimit -u and the control "
            "group's pids.max",
            std::strerror(errno)));
  }
  return ProcessHandle::open(guard);
}

void kill_children(pid_t mpirun) {
  for (const pid_t child : collectives::children_of(mpirun)) {
    signal_child_of(mpirun, child, SIGKILL);
  }
}

}  // namespace poprun::launcher
