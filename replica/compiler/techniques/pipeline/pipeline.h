#pragma once

#include "replica/base/error.h"
#include "replica/compiler/job/compile_options.h"
#include "replica/compiler/job/pass.h"
#include "replica/compiler/techniques/pipeline/schedule.h"

namespace poprun {

inline Schedule schedule_of(const PipelineOptions& options) {
  return schedule_of(options.schedule, options.phases);
}

/// Returns the recomputation that the options request, or the default for a job with this number of stages.
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
/// phase repeats its parts for every micro-batch. Each phase except the first follows a region with repeat 1, which
/// loads variables and does work for one phase, such as its update (phases.h). If the phase reads from other IPUs, a
/// region that calls `bring` for every micro-batch comes before both. Evaluation of a phased job is sequential: one
/// batch at a time passes through all phases.
///
/// After each cycle, one Copy moves tensors between IPUs, and one Copy per IPU moves those that stay on it. Every
/// tensor gets a home IPU. A variable's home is the IPU of the first part that uses it; the home of state is the IPU of
/// its parameter. A variable that other IPUs read has a replica on each of them, which is updated whenever the variable
/// changes. Requires: the stage of each origin is below the number of stages. Errors: those of Parts::take.
Status make_pipeline(Job& job, Schedule schedule);

}  // namespace poprun
