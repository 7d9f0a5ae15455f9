#pragma once

#include <cstdint>
#include <vector>

#include "replica/base/units.h"

namespace poprun {

/// A place between two operations of a list, named by the number of operations before it.
using CutPlaces = std::vector<std::uint32_t>;

/// Cuts a list of operations into segments of at most `limit` bytes, through places that together
/// cost least; the first such choice. An operation above the limit is a segment of its own.
///
/// `bytes[i]`: what operation i adds to its segment. `cost[i]`: bytes of a cut after operation i.
/// Cost: linear.
CutPlaces cut_at_narrow_places(const std::vector<std::int64_t>& bytes,
                               const std::vector<std::int64_t>& cost, std::int64_t limit);

}  // namespace poprun
