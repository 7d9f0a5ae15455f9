#pragma once

#include <functional>

#include "launcher/job/job.h"
#include "launcher/options/options.h"
#include "launcher/placement/placement.h"
#include "launcher/screen/console.h"

/// Subcommands and options that do something other than run the job, or something in addition to it.
namespace poprun::launcher {

/// Runs --list-models, which prints the built-in models. The replica's program lists them. Returns the exit code.
int list_models(const Options& options, Console& console);

/// Runs `poprun-emu estimate`. It asks a data server for a description of the data. Then it asks the replica's program
/// how much memory the job needs or, with --vary, how much each job derived from it needs. Returns the exit code.
int estimate(const Options& options, Console& console);

/// Runs `poprun-emu scale`: compiles the job for each number of replicas, in weak and in strong scaling, and prints
/// tables or data. Stops at the first job that cannot be compiled, and returns its exit code after printing the others;
/// otherwise, returns 0 whether or not the jobs fit.
int scale(const Options& options, Console& console);

/// Runs --dry-run. It asks the data server what the dataset contains, and compiles the job. Then it prints whether the
/// job fits, where it would run with which options, and a description of the Program. It starts no replica and creates
/// no file. Returns 0 or, if one of these steps fails, the exit code with which the job would have failed.
int dry_run(const Options& options, const Placement& placement, Console& console);

using RunJob = std::function<JobEnd(const Options&)>;

/// Runs `poprun-emu profile`, which shows where the memory and the device time of a compiled job go. `run` runs the job
/// for a few steps. Returns the exit code: that of kOutOfMemory if the job does not fit (its profile is still printed),
/// or that of the run if the run failed.
///
///   data server   what is the data?        .
///   replica       --profile: the Profile   |-- screen, profile.pb, profile.json
///   the job       a few steps, unless      |
///                 --no-run                 '
int profile(const Options& options, Console& console, const RunJob& run);

/// Runs `poprun-emu validate`: compiles the job of every published result, compares the device clock with the result,
/// and prints tables or JSON. Says on stderr which result is being compared. Returns the exit code: 0, or that of the
/// first result that could not be compared, for example because its file is wrong. A large error does not count as a
/// failure.
int validate(const Options& options, Console& console);

/// Shows two stored profiles side by side. Returns the exit code.
int compare_profiles(const Options& options, Console& console);

}  // namespace poprun::launcher
