#pragma once

#include "replica/search/changed_job.h"

namespace poprun {

/// Plans convolutions and matmuls on overfull IPUs with fewer temporary values, or with more, which needs less code and
/// fewer copies of operands.
Remedy other_proportions(const ChangedJob& job);

}  // namespace poprun
