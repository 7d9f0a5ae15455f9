#pragma once

#include <vector>

namespace poprun::launcher {

/// The signals that ask this command to end: SIGTERM, and those of SIGINT and SIGHUP that it does
/// not ignore. `nohup` starts it with SIGHUP ignored, and a shell without job control starts what
/// runs in its background with SIGINT ignored; no handler may be installed for those.
std::vector<int> ending_signals();

}  // namespace poprun::launcher
