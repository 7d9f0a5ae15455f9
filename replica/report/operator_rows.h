#pragma once

#include <string>
#include <vector>

#include "proto/report.pb.h"
#include "replica/device/device.h"
#include "replica/program/program.h"

namespace poprun {

/// Returns a row for each step of a Program other than calls and repeats. The row counts the step's calls and device
/// time in one run of `step_function`. If `step_function` does not reach the step, the row counts one run of the first
/// function that does reach it and that only the host calls.
std::vector<proto::OperatorRow> operator_rows(const Program& program, const Device& device,
                                              const std::string& step_function);

/// Adds the device's timeline of one call of the report's step_function, as walk() finds it, and the schedule of its
/// stages if there are several. Counts bars beyond the first `bars_max` without adding them.
void add_timeline(const Program& program, proto::Report& report, int bars_max);

}  // namespace poprun
