#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/planner/plan.h"
#include "replica/compiler/planner/vertex.h"
#include "replica/compiler/planner/view.h"
#include "replica/device/product.h"

namespace poprun::planner {

struct Candidate {
  Cycles cycles;
  Bytes bytes;  ///< Temporary bytes.
  std::int64_t tiles = 1;
  Splits splits;
  std::size_t way = 0;  ///< Number of its view and vertex, in the order of find_plans().
};

/// Orders equal costs: fewer tiles, then smaller splits, then the earlier view, then the earlier vertex. A total order.
bool comes_first(const Candidate& a, const Candidate& b);

/// The Pareto frontier: of the candidates offered, in any order, those that no other beats in both cycles and bytes.
class Frontier {
 public:
  /// Returns whether some point has at most these cycles and bytes, and less of at least one of the two. Then no
  /// candidate that costs at least this much belongs on the frontier.
  [[nodiscard]] bool beats(Cycles cycles, Bytes bytes) const;

  void offer(const Candidate& candidate);

  /// Returns the frontier by increasing cycles and decreasing bytes.
  [[nodiscard]] const std::vector<Candidate>& points() const { return points_; }

 private:
  std::vector<Candidate> points_;
};

/// Returns all plans of `product` that no other plan beats in both cycles and temporary bytes, by increasing cycles and
/// decreasing bytes: the first is the fastest, the last needs the least memory. Never empty. Among plans with the same
/// cost, keeps the one that comes first by comes_first().
///
/// Considers every view and vertex, all splits of its blocks into equal, non-empty parts with at most one parallel part
/// per tile, and serial steps of input or output channels that divide their blocks evenly. Deterministic: uses integers
/// only. Cost: milliseconds, by branch and bound over the splits.
std::vector<Plan> find_plans(const Product& product, const Target& target);

/// Returns the part counts up to `most` that split `size` into non-empty parts, which are equal except that the last
/// may be smaller. There is one count for each part size: for 10, these are 1, 2, 3 (4, 4, 2), 4, 5 and 10.
std::vector<std::int64_t> part_counts(std::int64_t size, std::int64_t most);

}  // namespace poprun::planner
