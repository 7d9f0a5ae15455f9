#pragma once

#include <string>

namespace poprun::launcher {

/// `exited with code 3`, `was killed by signal 9 (SIGKILL)`. `status` is that of waitpid.
std::string exit_text(int status);

}  // namespace poprun::launcher
