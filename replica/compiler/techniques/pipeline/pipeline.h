#pragma once

#include "replica/base/error.h"
#include "replica/compiler/job/compile_options.h"
#include "replica/compiler/job/pass.h"
#include "replica/compiler/techniques/pipeline/schedule.h"

namespace poprun {

inline Schedule schedule_of(const PipelineOptions& options) {
  return schedule_of(options.schedule, options.phases);
}

/// Returns the recomputation that the options ask for, or the default for a job of so many stages.
inline Recomputation recomputation_of(const PipelineOptions& options, std::size_t stages) {
  return options.recomputation.value_or(default_recomputation(stages, schedule_of(options)));
}

/// Turns the job's training step and evaluation into pipelines over job.ipu_of_stage:
///
///   train             begin, the cycles of the schedule as calls of parts, and update
///   forward.S         the forward part (forward pass) of stage S, on its own copies of its inputs
///   backward.S        its backward part
///   evaluate          the cycles of the whole test set
///   evaluate.S        the forward part of stage S in evaluation
///   bring.forward.S   in phases: copies the tensors that the stage reads from other IPUs
///
/// Each repeat of the schedule is a region of `train`. A phased job has the regions begin, the phases and update. A
/// phase repeats its parts for every micro-batch. Before each phase except the first come a region that calls `bring`
/// for every micro-batch, if the phase reads from other IPUs, and one with repeat 1, for loading variables and one
/// phase's work, such as its update (phases.h). Evaluation of a phased job is sequential: one batch at a time passes
/// through all phases.
///
/// After each cycle, one Copy moves tensors between IPUs, and one per IPU moves those that stay on it. Every tensor
/// gets a home IPU: for a variable, the IPU of the first part that names it; for state, the IPU of its parameter. A
/// variable that other IPUs read has a replica on each of them, copied whenever the variable changes. Requires: the
/// stage of each origin is below the number of stages. Errors: the same as Parts::take.
Status make_pipeline(Job& job, Schedule schedule);

}  // namespace poprun
