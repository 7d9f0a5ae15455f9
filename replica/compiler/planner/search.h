#pragma once

#include <vector>

#include "replica/compiler/planner/frontier.h"
#include "replica/compiler/planner/plan.h"
#include "replica/compiler/planner/target.h"
#include "replica/device/product.h"

namespace poprun::planner {

/// All plans of `product` that no other plan beats in both cycles and temporary bytes: rising
/// cycles, falling bytes; the first one is the fastest, the last one needs the least memory. Never
/// empty. Of plans with equal cost the first by comes_first().
///
/// Plans are: every view and vertex; every way to cut its blocks into equal parts of which none is
/// empty, with no more parallel parts than tiles, and serial steps of either input or output
/// channels that divide their blocks evenly.
///
/// determinism: integers only. cost: milliseconds; branch and bound over the splits.
std::vector<Plan> find_plans(const Product& product, const Target& target);

/// The numbers of parts that cut `size` into equal parts, the last one smaller, none empty, with
/// different sizes of a part: for 10, these are 1, 2, 3 (4, 4, 2), 4, 5 and 10. None above `most`.
std::vector<std::int64_t> part_counts(std::int64_t size, std::int64_t most);

}  // namespace poprun::planner
