#pragma once

#include "proto/answers.pb.h"
#include "replica/program/program.h"

namespace poprun {

/// Returns each IPU's work by cycle in one call of a function that runs pipeline stages; empty if it calls no part. A
/// cycle ends where IPUs exchange data for the next one. An update is in the cycle after the last part it waits for.
proto::StageSchedule stage_schedule(const Program& program, const proto::Function& function);

}  // namespace poprun
