#pragma once

#include <string>

#include "replica/program/program.h"

namespace poprun {

/// What each IPU does in one call of a function that runs the stages of a pipeline: a row for each
/// IPU, a column for each cycle. A is a forward part, G a backward part, R the recomputation before
/// it, each with the number of its micro-batch, from 1; U is the update. For 2 IPUs and 3
/// micro-batches:
///
///   IPU 0 | A1 A2   A3G1 G2   G3 U
///   IPU 1 |    A1G1 A2G2 A3G3 U
///
/// Cycles in the middle of a long one are left out, and counted in a line below. Empty if the
/// function calls no part of a stage.
std::string picture(const Program& program, const proto::Function& function);

}  // namespace poprun
