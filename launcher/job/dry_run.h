#pragma once

#include "launcher/options/options.h"
#include "launcher/placement/placement.h"
#include "launcher/screen/console.h"

namespace poprun::launcher {

/// --dry-run: prints what would be done, in the order in which it would be done, then asks the data
/// server what the dataset holds and compiles the job, and prints what the Program is. Starts no
/// replica, makes no file. Returns the exit code that the job would end with at the latest there.
int dry_run(const Options& options, const Placement& placement, Console& console);

}  // namespace poprun::launcher
