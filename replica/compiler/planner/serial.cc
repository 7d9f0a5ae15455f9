#include "replica/compiler/planner/cost.h"

/// What computing in steps costs besides the steps (ipu.md 2.5).
namespace poprun::planner {

/// 25 of the supervisor; a worker takes 63 + 2 n / vector width for its n elements.
Cycles slice_cycles(const Target& target, std::int64_t elements) {
  const std::int64_t share = ceil_div(elements, target.workers);
  return Cycles{25 + target.workers * (63 + ceil_div(2 * share, target.vector_width))};
}

/// Two loads and a store for each vector, as any elementwise operation [I].
Cycles accumulate_cycles(const Target& target, std::int64_t sums) {
  const std::int64_t vectors = ceil_div(ceil_div(sums, target.workers) * target.partial.count(), 8);
  return Cycles{target.workers * (26 + 3 * vectors)};
}

}  // namespace poprun::planner
