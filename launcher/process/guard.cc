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

namespace poprun::launcher {
namespace {

// Replicas that joined leave a dead launcher at once, and mpirun ends with them; only one that is
// still starting has to be asked.
constexpr int kMillisecondsBeforeTerm = 3000;
constexpr int kMillisecondsBeforeKill = 5000;

/// The life of the guard. Only calls that are safe after the fork of a process with threads, which
/// glibc's allocation of memory is.
[[noreturn]] void keep_watch(pid_t launcher, const ProcessHandle& mpirun,
                             collectives::JobFolder& folder) {
  setsid();  // Whoever signals the launcher's group or closes its terminal does not mean us.
  prctl(PR_SET_NAME, "poprun-guard");
  sigset_t death;
  sigemptyset(&death);
  sigaddset(&death, SIGTERM);
  sigprocmask(SIG_BLOCK, &death, nullptr);
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
  pollfd end{.fd = mpirun.descriptor(), .events = POLLIN, .revents = 0};
  if (poll(&end, 1, kMillisecondsBeforeTerm) == 0) {
    mpirun.signal(SIGTERM);
    if (poll(&end, 1, kMillisecondsBeforeKill) == 0) {
      mpirun.signal(SIGKILL);
    }
  }
  folder.remove();
  _exit(0);
}

}  // namespace

Result<ProcessHandle> start_guard(pid_t mpirun, collectives::JobFolder& folder) {
  POPRUN_ASSIGN(const ProcessHandle watched, ProcessHandle::open(mpirun));
  const pid_t launcher = getpid();
  const pid_t guard = fork();
  if (guard == 0) {
    keep_watch(launcher, watched, folder);
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

}  // namespace poprun::launcher
