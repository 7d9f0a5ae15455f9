#pragma once

#include <vector>

#include "replica/search/changed_job.h"

/// Changes of a job that reduce its memory.
namespace poprun {

/// The remedies for a job, cheapest first by the device time of a sample and by what it costs to try them: those that
/// compute more or move once per step, then other stages and more hardware, lower precision, what moves in every
/// micro-batch or phase, and last other data. A further remedy is a further entry.
std::vector<Remedy> remedies_for(const ChangedJob& job);

}  // namespace poprun
