#include "replica/compiler/stages/balance.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "replica/base/error.h"

namespace poprun {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

/// Layers [begin, end) as a stage.
struct Stage {
  std::int64_t excess = 0;  ///< Bytes beyond the capacity.
  std::int64_t cycles = 0;
  std::int64_t bytes = 0;
};

/// Every run of layers as a stage, from sums over the first layers.
class Stages {
 public:
  Stages(std::span<const LayerWeight> layers, Bytes capacity)
      : capacity_(capacity.count()), cycles_(1, 0), bytes_(1, 0) {
    for (const LayerWeight& layer : layers) {
      cycles_.push_back(cycles_.back() + layer.cycles.count());
      bytes_.push_back(bytes_.back() + layer.bytes.count());
    }
  }

  [[nodiscard]] Stage operator()(std::size_t begin, std::size_t end) const {
    const std::int64_t bytes = bytes_[end] - bytes_[begin];
    return {std::max<std::int64_t>(bytes - capacity_, 0), cycles_[end] - cycles_[begin], bytes};
  }

  [[nodiscard]] std::size_t layers() const { return cycles_.size() - 1; }

 private:
  std::int64_t capacity_;
  std::vector<std::int64_t> cycles_;
  std::vector<std::int64_t> bytes_;
};

struct Best {
  std::int64_t largest = kNever;      ///< The largest cost of any stage.
  std::vector<std::size_t> begins{};  ///< First layers of all stages but the first.
};

/// The cut for which the largest `cost` (of a stage; kNever: not allowed) is smallest.
///
///   best[s][end] = min over begin of max(best[s - 1][begin], cost(begin, end))
template <typename Cost>
Best minimise(std::size_t layers, std::size_t stages, Cost cost) {
  using Row = std::vector<std::int64_t>;
  std::vector<Row> best(stages + 1, Row(layers + 1, kNever));
  std::vector<std::vector<std::size_t>> from(stages + 1, std::vector<std::size_t>(layers + 1));
  best[0][0] = std::numeric_limits<std::int64_t>::min();
  for (std::size_t s = 1; s <= stages; ++s) {
    for (std::size_t end = s; end <= layers; ++end) {
      for (std::size_t begin = s - 1; begin < end; ++begin) {
        const std::int64_t largest = std::max(best[s - 1][begin], cost(begin, end));
        if (largest < best[s][end]) {
          best[s][end] = largest;
          from[s][end] = begin;
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

}  // namespace

// The least excess first; then, among stages within it, the fewest cycles; then, among stages
// within both, the fewest bytes. (All three at once would not do: the best prefix of a cut need not
// be part of the best cut.)
std::vector<std::size_t> balance(std::span<const LayerWeight> layers, std::size_t stages,
                                 Bytes capacity) {
  POPRUN_CHECK(stages > 0 && stages <= layers.size());
  const Stages of(layers, capacity);
  const std::int64_t excess =
      minimise(of.layers(), stages, [&](std::size_t begin, std::size_t end) {
        return of(begin, end).excess;
      }).largest;
  const std::int64_t cycles =
      minimise(of.layers(), stages, [&](std::size_t begin, std::size_t end) {
        const Stage stage = of(begin, end);
        return stage.excess <= excess ? stage.cycles : kNever;
      }).largest;
  return minimise(of.layers(), stages,
                  [&](std::size_t begin, std::size_t end) {
                    const Stage stage = of(begin, end);
                    return stage.excess <= excess && stage.cycles <= cycles ? stage.bytes : kNever;
                  })
      .begins;
}

}  // namespace poprun
