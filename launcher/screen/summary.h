#pragma once

#include <string>

#include "proto/check.pb.h"
#include "proto/profile.pb.h"

/// Output of `poprun-emu check`, with one line per run, printed as the run ends:
///
///     IPUs  split  schedule  recomputation  peak on IPU  device/step   util.  result
///        1  4      -         none              11.8 MiB     1.234 ms   100 %  the reference
///        2  2 2    grouped   pipeline           6.1 MiB     0.800 ms    77 %  equal
///
/// The wall time per step, left out here, precedes the result.
namespace poprun::launcher {

std::string check_heading();
std::string check_row(const proto::CheckedRun& run);

/// Returns 0 if all compared runs are equal, and the code of kBug if one differs. A check that compared nothing does
/// not pass: it has the code of a job that does not fit in memory if that is the reason, else that of a usage error.
int check_exit_code(const proto::CheckReport& report);

/// Returns a check's last lines: how many runs were equal, what became of the others, and what an early end left out.
std::string check_result(const proto::CheckReport& report);

/// Formats the final summary of a finished job: each figure with its unit and its clock. `result_folder` is where the
/// files are; `checkpoints` describes the checkpoints, if any.
std::string summary(const proto::Profile& profile, const std::string& result_folder,
                    const std::string& checkpoints = "");

}  // namespace poprun::launcher
