#include <algorithm>

#include "replica/compiler/planner/cost.h"

/// Adding up partial sums in one to three stages (ipu.md 2.5).
namespace poprun::planner {
namespace {

/// Smallest integer whose `power`-th power is at least `value`. Requires value >= 1.
std::int64_t root(std::int64_t value, int power) {
  std::int64_t r = 1;
  const auto reaches = [&] {
    std::int64_t product = 1;
    for (int i = 0; i < power; ++i) {
      product *= r;
    }
    return product >= value;
  };
  while (!reaches()) {
    ++r;
  }
  return r;
}

int stages_for(std::int64_t depth) {
  return depth < 16 ? 1 : depth < 125 ? 2 : 3;
}

/// One stage: a worker adds `depth` rows of its share of the outputs, 8 or 16 bytes at a time.
std::int64_t stage_cycles(const Target& target, std::int64_t outputs, std::int64_t depth) {
  const std::int64_t loops = ceil_div(outputs, 16 / target.partial.count());
  return target.workers * (32 + ceil_div(loops, target.workers) * (3 * depth + 7));
}

}  // namespace

Reduction reduction_cycles(const Target& target, std::int64_t sums, std::int64_t depth) {
  Reduction total;
  // Charged without a reduction too: the result goes to where the output lies.
  total.exchange = exchange_cycles(target, target.partial * sums, false);
  if (depth == 1) {
    if (target.partial != target.element) {
      const std::int64_t loops = ceil_div(ceil_div(sums, target.workers), target.vector_width);
      total.compute = Cycles{target.workers * (loops + 26)};
    }
    return total;
  }
  // A tile adds `fan_in` partial sums of each of its outputs in a stage, and then has fewer
  // outputs.
  const int stages = stages_for(depth);
  const std::int64_t factor = root(depth, stages);
  std::int64_t left = depth;
  std::int64_t outputs = sums;
  for (int stage = 0; stage < stages; ++stage) {
    const std::int64_t fan_in = stage + 1 == stages ? left : std::min(factor, left);
    outputs = ceil_div(outputs, fan_in);
    total.compute += Cycles{stage_cycles(target, outputs, fan_in)};
    if (stage > 0) {
      total.exchange += exchange_cycles(target, target.partial * (outputs * fan_in), false);
    }
    left = ceil_div(left, fan_in);
  }
  return total;
}

}  // namespace poprun::planner
