#pragma once

#include <string>

#include "proto/check.pb.h"
#include "proto/profile.pb.h"

/// Output of `poprun-emu check`. Each run has a line, which is printed when the run ends:
///
///     IPUs  split  schedule  recomputation  peak on IPU  device/step   util.  result
///        1  4      -         none              11.8 MiB     1.234 ms   100 %  the reference
///        2  2 2    grouped   pipeline           6.1 MiB     0.800 ms    77 %  equal
///
/// The wall time per step, which is left out here, precedes the result.
namespace poprun::launcher {

std::string check_heading();
std::string check_row(const proto::CheckedRun& run);

/// Returns 0 if all compared runs are equal, and the code of kBug if one differs. A check that compared nothing does
/// not pass. Its code is that of kOutOfMemory if runs did not fit in memory, else that of kUsage.
int check_exit_code(const proto::CheckReport& report);

/// Returns the last lines of a check: how many runs were equal, what became of the others, and what was left out.
std::string check_result(const proto::CheckReport& report);

/// Formats the final summary of a finished job: each figure with its unit and its clock. `result_folder` is where the
/// files are. `checkpoints` describes the checkpoints, if any.
std::string summary(const proto::Profile& profile, const std::string& result_folder,
                    const std::string& checkpoints = "");

}  // namespace poprun::launcher
