#pragma once

#include <string>

#include "proto/check.pb.h"
#include "proto/profile.pb.h"

/// What `poprun-emu check` shows, a line a run, as they end:
///
///   IPUs  split  schedule  recomputation  peak on IPU  device/step   util.  result
///      1  4      -         none              11.8 MiB     1.234 ms   100 %  the reference
///      2  2 2    grouped   pipeline           6.1 MiB     0.800 ms    77 %  equal
///
/// with the wall time of a step before the result.
namespace poprun::launcher {

std::string check_heading();
std::string check_row(const proto::CheckedRun& run);

/// 0 if all runs that were compared are equal; that of a bug of ours if one differs. Nothing
/// compared does not pass: that of a job that does not fit where memory is the reason, otherwise
/// that of a wrong request.
int check_exit_code(const proto::CheckReport& report);

/// The last words: how many runs were equal, what the other combinations were, and what is missing
/// of a check that ended early.
std::string check_result(const proto::CheckReport& report);

/// What a finished job tells its user: each figure with its unit and its clock. `result_folder` is
/// where the files are, `checkpoints` says what became of those, if any.
std::string summary(const proto::Profile& profile, const std::string& result_folder,
                    const std::string& checkpoints = "");

}  // namespace poprun::launcher
