#include "launcher/process/ending_signals.h"

#include <csignal>

namespace poprun::launcher {

std::vector<int> ending_signals() {
  std::vector<int> numbers = {SIGTERM};
  for (const int number : {SIGINT, SIGHUP}) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

}  // namespace poprun::launcher
