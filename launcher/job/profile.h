#pragma once

#include <functional>

#include "launcher/job/outcome.h"
#include "launcher/options/options.h"
#include "launcher/screen/console.h"

/// `poprun-emu profile`: shows where the memory and the device time of a compiled job go.
///
///   data server   what is the data?        .
///   replica       --profile: the Profile   |-- screen, profile.pb, profile.json
///   the job       a few steps, unless      |
///                 --no-run                 '
namespace poprun::launcher {

/// Runs the job with these options.
using RunJob = std::function<JobEnd(const Options&)>;

/// Profiles the job; `run` executes its few steps. Returns the exit code: that of kOutOfMemory for a job that does not
/// fit, once its profile is printed; that of the run, if it failed.
int profile(const Options& options, Console& console, const RunJob& run);

/// Shows two stored profiles side by side. Returns the exit code.
int compare_profiles(const Options& options, Console& console);

}  // namespace poprun::launcher
