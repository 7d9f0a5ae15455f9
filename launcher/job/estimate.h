#pragma once

#include "launcher/options/options.h"
#include "launcher/screen/console.h"

namespace poprun::launcher {

/// Runs `poprun-emu estimate`: asks a data server what the data is, and the replica's program how much memory the job
/// needs, or each of the jobs that --vary derives from it. Returns the exit code.
int estimate(const Options& options, Console& console);

}  // namespace poprun::launcher
