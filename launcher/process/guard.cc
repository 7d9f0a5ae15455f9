#include "launcher/process/guard.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace poprun::launcher {
namespace {

// For mpirun's end, 50 ms apart. Replicas that joined leave a dead launcher at once, and mpirun
// ends with them; only one that is still starting has to be asked.
constexpr int kLooksBeforeTerm = 60;
constexpr int kLooks = 160;
constexpr timespec kBetweenLooks{.tv_sec = 0, .tv_nsec = 50'000'000};

/// The life of the guard. Only calls that are safe after the fork of a process with threads.
[[noreturn]] void keep_watch(pid_t launcher, pid_t mpirun) {
  setsid();  // Whoever signals the launcher's group or closes its terminal does not mean us.
  prctl(PR_SET_NAME, "poprun-guard");
  sigset_t death;
  sigemptyset(&death);
  sigaddset(&death, SIGTERM);
  sigprocmask(SIG_BLOCK, &death, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  closefrom(0);  // The launcher's sockets must close with it, or replicas do not see it die.
  while (getppid() == launcher) {
    sigwaitinfo(&death, nullptr);
  }
  for (int look = 0; look < kLooks && kill(mpirun, 0) == 0; ++look) {
    if (look == kLooksBeforeTerm) {
      kill(mpirun, SIGTERM);
    }
    nanosleep(&kBetweenLooks, nullptr);
  }
  kill(mpirun, SIGKILL);
  _exit(0);
}

}  // namespace

Result<pid_t> start_guard(pid_t mpirun) {
  const pid_t launcher = getpid();
  const pid_t guard = fork();
  if (guard == 0) {
    keep_watch(launcher, mpirun);
  }
  if (guard < 0) {
    return fail(ErrorCode::kHostResources,
                fmt::format("no process to guard mpirun: {}", std::strerror(errno)));
  }
  return guard;
}

}  // namespace poprun::launcher
