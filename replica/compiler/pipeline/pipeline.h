#pragma once

#include "replica/base/error.h"
#include "replica/compiler/job/job.h"
#include "replica/compiler/pipeline/schedule.h"

namespace poprun {

/// Makes the job's training step and its evaluation pipelines over job.ipu_of_stage:
///
///   train             begin, the cycles of the schedule as calls of parts, and update
///   forward.S         the forward part of stage S, with a micro-batch's own copy of what it reads
///   backward.S        its backward part
///   evaluate          the cycles of the whole test set
///   evaluate.S        the forward part of stage S in evaluation
///
/// Behind each cycle, one Copy moves what crosses to other IPUs; what a part hands to the next one
/// on the same IPU is a Copy of its own. Every tensor gets its home: variables where the first part
/// that names them is, state where its parameter is. A variable that other IPUs read has a replica
/// there, copied wherever the variable changes.
///
/// Requires: origins with stages below the number of stages.
/// Errors: as Parts::take.
Status make_pipeline(Job& job, Schedule schedule);

}  // namespace poprun
