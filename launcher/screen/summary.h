#pragma once

#include <string>

#include "proto/check.pb.h"
#include "proto/profile.pb.h"

/// Formats the output of `poprun-emu check` and the summary of a job. In a check, each run gets a line when it ends:
///
///     IPUs  split  schedule  recomputation  peak on IPU  device/step   util.  result
///        1  4      -         none              11.8 MiB     1.234 ms   100 %  the reference
///        2  2 2    grouped   pipeline           6.1 MiB     0.800 ms    77 %  equal
///
/// The wall time per step, which this example omits, precedes the result.
namespace poprun::launcher {

std::string check_heading();
std::string check_row(const proto::CheckedRun& run);

/// Returns 0 if all compared runs are equal, and the code of kBug if one differs. A check that compared nothing does
/// not pass: returns the code of kOutOfMemory if runs did not fit in memory, else that of kUsage.
int check_exit_code(const proto::CheckReport& report);

/// Returns the last lines of a check: how many runs were equal, what happened to the others, and what was not run.
std::string check_result(const proto::CheckReport& report);

/// Formats the summary of a finished job: each figure with its unit and its clock. `result_folder` contains the result
/// files. `checkpoints` describes the checkpoints, if there are any.
std::string summary(const proto::Profile& profile, const std::string& result_folder,
                    const std::string& checkpoints = "");

}  // namespace poprun::launcher
