#pragma once

#include "launcher/options/options.h"
#include "launcher/placement/placement.h"
#include "launcher/screen/console.h"

namespace poprun::launcher {

/// Runs --dry-run: prints what the job would do, in order, then asks the data server what the dataset holds, compiles
/// the job, and prints a description of the Program. Starts no replica and creates no file. Returns 0, or the exit code
/// of the error with which the job would have failed by then.
int dry_run(const Options& options, const Placement& placement, Console& console);

}  // namespace poprun::launcher
