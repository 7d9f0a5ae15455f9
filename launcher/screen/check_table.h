#pragma once

#include <string>

#include "proto/check.pb.h"

/// What `poprun-emu check` shows, a line a run, as they end:
///
///   IPUs  split    schedule     recomputation  peak/IPU  device/step   util.  wall/step  result
///      1  4        -            none           11.8 MiB     1.234 ms   100 %   0.0123 s  the
///      reference 2  2 2      grouped      pipeline        6.1 MiB     0.800 ms    77 %   0.0140 s
///      equal
namespace poprun::launcher {

std::string check_heading();
std::string check_row(const proto::CheckedRun& run);

/// 0 if all executed runs are equal; of a run that differs that of a bug of ours; where none fits,
/// that of a job that does not fit.
int check_exit_code(const proto::CheckReport& report);

/// The last words: how many runs were equal, and what the others were.
std::string check_result(const proto::CheckReport& report, const std::string& result_folder);

}  // namespace poprun::launcher
