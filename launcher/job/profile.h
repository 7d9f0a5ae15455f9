#pragma once

#include <functional>

#include "launcher/job/outcome.h"
#include "launcher/options/options.h"
#include "launcher/screen/console.h"

/// `poprun-emu profile`: where a compiled job's memory and device time go.
///
///   data server   what is the data?        .
///   replica       --profile: the Profile   |-- screen, profile.pb, profile.json
///   the job       a few steps, unless      |
///                 --no-run                 '
namespace poprun::launcher {

/// Runs the job with such options.
using RunJob = std::function<JobEnd(const Options&)>;

/// Profiles the job; `run` executes its few steps. Returns the exit code: that of kOutOfMemory for
/// a job that does not fit, after its profile; that of the run, if it failed.
int profile(const Options& options, Console& console, const RunJob& run);

/// Shows two profiles of the past beside each other. Returns the exit code.
int compare_profiles(const Options& options, Console& console);

}  // namespace poprun::launcher
