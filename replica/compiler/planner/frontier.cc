#include "replica/compiler/planner/frontier.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace poprun::planner {

bool comes_first(const Candidate& a, const Candidate& b) {
  return std::tie(a.tiles, a.splits, a.way) < std::tie(b.tiles, b.splits, b.way);
}

bool Frontier::beats(Cycles cycles, Bytes bytes) const {
  // The last point with no more cycles has the fewest bytes of these.
  const auto after = std::ranges::upper_bound(points_, cycles, {}, &Candidate::cycles);
  if (after == points_.begin()) {
    return false;
  }
  const Candidate& point = *std::prev(after);
  return point.bytes < bytes || (point.bytes == bytes && point.cycles < cycles);
}

void Frontier::offer(const Candidate& candidate) {
  if (beats(candidate.cycles, candidate.bytes)) {
    return;
  }
  const auto first = std::ranges::lower_bound(points_, candidate.cycles, {}, &Candidate::cycles);
  if (first != points_.end() && first->cycles == candidate.cycles &&
      first->bytes == candidate.bytes) {
    if (comes_first(candidate, *first)) {
      *first = candidate;
    }
    return;
  }
  const auto last = std::find_if(first, points_.end(), [&candidate](const Candidate& point) {
    return point.bytes < candidate.bytes;
  });
  points_.insert(points_.erase(first, last), candidate);
}

}  // namespace poprun::planner
