#pragma once

#include "launcher/job/outcome.h"
#include "launcher/options/options.h"
#include "launcher/placement/placement.h"
#include "launcher/screen/console.h"

namespace poprun::launcher {

/// Runs the job, and where it fails in a way that may pass again from its last checkpoint, with
/// --restarts: on the hosts that are left, after a pause that grows from 1 s to 30 s. `launched_at`
/// is monotonic_seconds() when the command began.
JobEnd run_attempts(const Options& options, const Placement& placement, Console& console,
                    double launched_at);

}  // namespace poprun::launcher
