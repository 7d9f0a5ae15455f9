#pragma once

#include "replica/base/error.h"
#include "replica/compiler/job/compile_options.h"
#include "replica/compiler/job/pass.h"
#include "replica/compiler/techniques/pipeline/schedule.h"

namespace poprun {

/// Selects the schedule named in the options. Errors: kUsage if it is unknown.
Result<Schedule> schedule_of(const PipelineOptions& options);

/// Makes the job's training step and its evaluation pipelines over job.ipu_of_stage:
///
///   train             begin, the cycles of the schedule as calls of parts, and update
///   forward.S         the forward part of stage S, with a micro-batch's own copy of what it reads
///   backward.S        its backward part
///   evaluate          the cycles of the whole test set
///   evaluate.S        the forward part of stage S in evaluation
///   bring.forward.S   in phases: brings what the stage reads of another IPU
///
/// Each repeat of the schedule is a region of `train`. Of a phased job, these are: begin; then for each phase, which is
/// the region that repeats its parts for every micro-batch, before all but the first one a region that calls `bring`
/// for every micro-batch, if anything is to be brought, and one (repeat 1) where the phase's variables may be loaded,
/// and which does what concerns one phase alone, such as its update (phase_order.h); update. Evaluation is sequential
/// there: one batch at a time goes through all phases.
///
/// Behind each cycle, one Copy moves what crosses to other IPUs; what a part hands to the next one on the same IPU is a
/// Copy of its own. Every tensor gets its home: variables where the first part that names them is, state where its
/// parameter is. A variable that other IPUs read has a replica there, copied wherever the variable changes.
///
/// Requires: origins with stages below the number of stages.
/// Errors: as Parts::take.
Status make_pipeline(Job& job, Schedule schedule);

}  // namespace poprun
