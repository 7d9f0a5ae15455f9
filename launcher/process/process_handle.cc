#include "launcher/process/process_handle.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>
extern "C" {  // The header in glibc 2.36 does not declare C linkage.
#include <sys/pidfd.h>
}

#include "collectives/session/session.h"

namespace poprun::launcher {

std::string exit_text(int status) {
  if (!WIFSIGNALED(status)) {
    return fmt::format("exited with code {}", WEXITSTATUS(status));
  }
  const char* name = sigabbrev_np(WTERMSIG(status));
  return fmt::format("was killed by signal {}{}", WTERMSIG(status),
                     name == nullptr ? "" : fmt::format(" (SIG{})", name));
}

std::vector<int> ending_signals() {
  std::vector<int> numbers = {SIGTERM};
  for (const int number : {SIGINT, SIGHUP, SIGUSR2}) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

void unblock_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

pid_t fork_with_signals_blocked() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  if (pid != 0) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  return pid;
}

Result<ProcessHandle> ProcessHandle::open(pid_t pid) {
  const int descriptor = pid > 0 ? pidfd_open(pid, 0) : -1;
  if (descriptor < 0) {
    return fail(ErrorCode::kHostResources, fmt::format("process {} cannot be opened: {}", pid,
                                                       pid > 0 ? std::strerror(errno) : "no process has this id"));
  }
  return ProcessHandle(descriptor);
}

ProcessHandle::ProcessHandle(ProcessHandle&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

ProcessHandle& ProcessHandle::operator=(ProcessHandle&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

ProcessHandle::~ProcessHandle() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

void ProcessHandle::signal(int number) const {
  if (descriptor_ >= 0) {
    pidfd_send_signal(descriptor_, number, nullptr, 0);
  }
}

void ProcessHandle::reap() const {
  siginfo_t end{};
  if (descriptor_ >= 0) {
    waitid(P_PIDFD, static_cast<id_t>(descriptor_), &end, WEXITED);
  }
}

void signal_child_of(pid_t parent, pid_t pid, int number) {
  // The parent is checked after the handle has been opened, because from then on, reuse of the process id does no harm.
  if (const auto handle = ProcessHandle::open(pid); handle && collectives::parent_of(pid) == parent) {
    handle->signal(number);
  }
}

}  // namespace poprun::launcher
