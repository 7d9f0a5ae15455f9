#pragma once

#include "proto/answers.pb.h"
#include "replica/program/program.h"

namespace poprun {

/// Returns the work of each IPU in one call of a function that runs the stages of a pipeline, by cycle. A cycle ends
/// where the IPUs exchange the data for the next one. An update is in the cycle after the last part that it waits for.
/// Empty if no part of a stage is called.
proto::StageSchedule stage_schedule(const Program& program, const proto::Function& function);

}  // namespace poprun
