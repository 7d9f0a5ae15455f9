#pragma once

#include "proto/answers.pb.h"
#include "replica/estimate/estimate.h"
#include "replica/program/program.h"

/// Converts estimates to messages for the launcher, which prints them.
namespace poprun {

proto::JobEstimate to_proto(const Estimate& estimate);

/// Returns the needs of a compiled job. Requires: the Program has a layout for each IPU.
proto::CompiledEstimate compiled_estimate(const Program& program);

}  // namespace poprun
