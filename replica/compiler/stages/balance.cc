#include "replica/compiler/stages/balance.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>

#include "replica/base/error.h"
#include "replica/compiler/stages/stage_bytes.h"

namespace poprun {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

struct Best {
  std::int64_t largest = kNever;      ///< The largest cost of any stage.
  std::vector<std::size_t> begins{};  ///< First layers of all stages but the first.
};

/// The cut for which the largest `cost` (of a stage; kNever: not allowed) is smallest.
///
///   best[s + 1][end] = min over begin of max(best[s][begin], cost(s, begin, end))
template <typename Cost>
Best minimise(std::size_t layers, std::size_t stages, Cost cost) {
  using Row = std::vector<std::int64_t>;
  std::vector<Row> best(stages + 1, Row(layers + 1, kNever));
  std::vector<std::vector<std::size_t>> from(stages + 1, std::vector<std::size_t>(layers + 1));
  best[0][0] = std::numeric_limits<std::int64_t>::min();
  for (std::size_t s = 0; s < stages; ++s) {
    for (std::size_t end = s + 1; end <= layers; ++end) {
      for (std::size_t begin = s; begin < end; ++begin) {
        const std::int64_t largest = std::max(best[s][begin], cost(s, begin, end));
        if (largest < best[s + 1][end]) {
          best[s + 1][end] = largest;
          from[s + 1][end] = begin;
        }
      }
    }
  }
  Best found{best[stages][layers]};
  std::size_t end = layers;
  for (std::size_t s = stages; s > 1; --s) {
    end = from[s][end];
    found.begins.insert(found.begins.begin(), end);
  }
  return found;
}

/// Temporaries differ from split to split, but not by so much.
bool is_hopeless(const Balancing& balancing, const MeasuredSplit& split) {
  const Bytes needed = std::accumulate(split.peaks.begin(), split.peaks.end(), Bytes{});
  const Bytes had = balancing.capacity * static_cast<std::int64_t>(split.peaks.size());
  return needed.count() * 4 > had.count() * 5;
}

}  // namespace

// The least excess first; then, among stages within it, the fewest cycles; then, among stages
// within both, the fewest bytes. (All three at once would not do: the best prefix of a cut need not
// be part of the best cut.)
std::vector<std::size_t> balance(const Balancing& balancing,
                                 std::span<const MeasuredSplit> measured) {
  const std::size_t layers = balancing.layers.size();
  const std::size_t stages = balancing.in_flight.size();
  POPRUN_CHECK(stages > 0 && stages <= layers);
  const StageBytes bytes(balancing, measured);
  std::vector<std::int64_t> first_cycles = {0};  // Sums over the first 0, 1, ... layers.
  for (const LayerWeight& layer : balancing.layers) {
    first_cycles.push_back(first_cycles.back() + layer.cycles.count());
  }
  const auto cycles_of = [&](std::size_t stage, std::size_t begin, std::size_t end) {
    const std::int64_t once = first_cycles[end] - first_cycles[begin];
    const bool again = stage < balancing.recomputes.size() && balancing.recomputes[stage];
    return once + (again ? once / 3 : 0);
  };
  const auto excess_of = [&](std::size_t stage, std::size_t begin, std::size_t end) {
    return std::max<std::int64_t>(bytes(stage, begin, end) - balancing.capacity.count(), 0);
  };
  const std::int64_t excess = minimise(layers, stages, excess_of).largest;
  const std::int64_t cycles =
      minimise(layers, stages, [&](std::size_t stage, std::size_t begin, std::size_t end) {
        return excess_of(stage, begin, end) <= excess ? cycles_of(stage, begin, end) : kNever;
      }).largest;
  return minimise(layers, stages,
                  [&](std::size_t stage, std::size_t begin, std::size_t end) {
                    return excess_of(stage, begin, end) <= excess &&
                                   cycles_of(stage, begin, end) <= cycles
                               ? bytes(stage, begin, end)
                               : kNever;
                  })
      .begins;
}

std::optional<std::vector<std::size_t>> next_split(const Balancing& balancing,
                                                   std::span<const MeasuredSplit> measured) {
  using Begins = std::vector<std::size_t>;
  if (is_hopeless(balancing, measured.back())) {
    return std::nullopt;
  }
  const auto known = [&](const Begins& begins) {
    return std::ranges::find(measured, begins, &MeasuredSplit::begins);
  };
  const Begins balanced = balance(balancing, measured);
  if (known(balanced) == measured.end()) {
    return balanced;
  }
  const StageBytes bytes(balancing, measured);
  std::int64_t least = kNever;
  std::optional<Begins> best;
  for (std::size_t k = 0; k < balanced.size(); ++k) {
    for (const std::size_t begin : {balanced[k] - 1, balanced[k] + 1}) {
      Begins bounds = balanced;
      bounds[k] = begin;
      if (known(bounds) != measured.end()) {
        continue;
      }
      const Begins beside = bounds;
      bounds.insert(bounds.begin(), 0);
      bounds.push_back(balancing.layers.size());
      if (std::ranges::adjacent_find(bounds, std::greater_equal{}) != bounds.end()) {
        continue;  // A stage would be empty.
      }
      std::int64_t fullest = 0;
      for (std::size_t s = 0; s <= balanced.size(); ++s) {
        fullest = std::max(fullest, bytes(s, bounds[s], bounds[s + 1]));
      }
      if (fullest < least) {
        least = fullest;
        best = beside;
      }
    }
  }
  return best;
}

}  // namespace poprun
