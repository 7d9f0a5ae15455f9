#pragma once

#include <cstdint>
#include <set>

#include "replica/program/program.h"

namespace poprun {

/// Sets AllReduce.divisible and Step.completes (replication.h) in a Program whose divisible steps are marked. `views`
/// holds the numbers of the steps that are views. Cost: two passes over the steps, in which calls are inlined.
void mark_divisible_sums(Program& program, const std::set<std::uint32_t>& views);

}  // namespace poprun
