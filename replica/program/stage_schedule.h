#pragma once

#include "proto/report.pb.h"
#include "replica/program/program.h"

namespace poprun {

/// Returns each IPU's work in each cycle of one call of a function that runs pipeline stages. The result is empty if
/// the function calls no part. A cycle ends where IPUs exchange data for the next one. An update takes place in the
/// cycle after the last part for which it waits.
proto::StageSchedule stage_schedule(const Program& program, const proto::Function& function);

}  // namespace poprun
