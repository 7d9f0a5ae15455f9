#pragma once

#include <string>
#include <vector>

#include "proto/report.pb.h"
#include "replica/device/device.h"
#include "replica/program/program.h"

namespace poprun {

/// Returns a row for each step of a Program other than calls and repeats, with its device time over all calls in one
/// run of the function that the host calls. Functions that `step_function` reaches count as part of it.
std::vector<proto::OperatorRow> operator_rows(const Program& program, const Device& device,
                                              const std::string& step_function);

}  // namespace poprun
