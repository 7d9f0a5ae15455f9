#include "launcher/process/exit_text.h"

#include <cstring>

#include <fmt/format.h>
#include <sys/wait.h>

namespace poprun::launcher {

std::string exit_text(int status) {
  if (!WIFSIGNALED(status)) {
    return fmt::format("exited with code {}", WEXITSTATUS(status));
  }
  const char* name = sigabbrev_np(WTERMSIG(status));
  return fmt::format("was killed by signal {}{}", WTERMSIG(status),
                     name == nullptr ? "" : fmt::format(" (SIG{})", name));
}

}  // namespace poprun::launcher
