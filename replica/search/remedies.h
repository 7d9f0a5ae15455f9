#pragma once

#include <vector>

#include "replica/search/changed_job.h"

/// Changes to a job that reduce its memory.
namespace poprun {

/// Returns the remedies for a job, cheapest first by device time per sample and by the cost of trying them: those that
/// compute more or move data once per step, then other stages and more hardware, lower precision, data that moves in
/// every micro-batch or phase, and last other training data. To add a remedy, add an entry.
std::vector<Remedy> remedies_for(const ChangedJob& job);

}  // namespace poprun
