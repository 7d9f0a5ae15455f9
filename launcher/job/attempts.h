#pragma once

#include "launcher/job/outcome.h"
#include "launcher/options/options.h"
#include "launcher/placement/placement.h"
#include "launcher/screen/console.h"

namespace poprun::launcher {

/// Runs the job and, with --restarts, runs it again from its last checkpoint if it fails for a reason that may pass: on
/// the remaining hosts, after a pause that grows from 1 s to 30 s. `launched_at` is monotonic_seconds() at the start of
/// the command.
JobEnd run_attempts(const Options& options, const Placement& placement, Console& console, double launched_at);

}  // namespace poprun::launcher
