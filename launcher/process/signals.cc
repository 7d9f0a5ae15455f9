#include "launcher/process/signals.h"

#include <unistd.h>

namespace poprun::launcher {

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

}  // namespace poprun::launcher
