#pragma once

#include <string>
#include <vector>

#include "proto/report.pb.h"
#include "replica/device/device.h"
#include "replica/program/program.h"

namespace poprun {

/// Returns a row for each step of a Program that is not a call or a repeat, with its total device time in one run of
/// `step_function`, which the host calls. Functions that it calls are included.
std::vector<proto::OperatorRow> operator_rows(const Program& program, const Device& device,
                                              const std::string& step_function);

}  // namespace poprun
