#pragma once

#include <vector>

#include "replica/search/changed_job.h"

/// Changes to a job that reduce its memory.
namespace poprun {

/// Returns the remedies for a job, cheapest first in device time per sample and in the cost of trying them: first
/// remedies that compute more or move data once per step; then different stages, more hardware, lower precision, and
/// moving data in every micro-batch or phase; last, different training data. To add a remedy, add an entry to the list.
std::vector<Remedy> remedies_for(const ChangedJob& job);

}  // namespace poprun
