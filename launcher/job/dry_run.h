#pragma once

#include "launcher/options/options.h"
#include "launcher/placement/placement.h"
#include "launcher/screen/console.h"

namespace poprun::launcher {

/// --dry-run: prints what would be done, in that order, then asks the data server what the dataset holds, compiles the
/// job, and prints a description of the Program. Starts no replica and creates no file. Returns 0, or the exit code of
/// the error that the job would fail with by then.
int dry_run(const Options& options, const Placement& placement, Console& console);

}  // namespace poprun::launcher
