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
  std::size_t way = 0;  ///< Index of its pair of view and vertex, in the order in which find_plans() lists the pairs.
};

/// A total order of candidates with the same cost: by number of tiles, then splits, view and vertex; lowest first.
bool comes_first(const Candidate& a, const Candidate& b);

/// The Pareto frontier: the offered candidates that no other one beats. The order of the offers does not matter.
class Frontier {
 public:
  /// Returns whether some point has at most this many cycles and bytes, and fewer of at least one. If so, no candidate
  /// that costs at least this much belongs on the frontier.
  [[nodiscard]] bool beats(Cycles cycles, Bytes bytes) const;

  void offer(const Candidate& candidate);

  /// Returns the frontier, sorted by increasing cycles and decreasing bytes.
  [[nodiscard]] const std::vector<Candidate>& points() const { return points_; }

 private:
  std::vector<Candidate> points_;
};

/// Returns the Pareto-optimal plans of `product`, sorted by increasing cycles and decreasing temporary bytes. The first
/// is fastest, and the last needs the least memory. The result is never empty. If several plans have the same cost,
/// only the first by comes_first() is returned.
///
/// Considers every view and vertex, all splits into the parts that part_counts() allows, with at most one parallel part
/// per tile, and serial steps that divide the blocks of input or output channels evenly. Deterministic: uses integers
/// only. Cost: milliseconds, by branch and bound over the splits.
std::vector<Plan> find_plans(const Product& product, const Target& target);

/// Returns the part counts up to `most` that split `size` into non-empty parts, which are equal except that the last
/// may be smaller. There is one count for each part size: for 10, these are 1, 2, 3 (4, 4, 2), 4, 5 and 10.
std::vector<std::int64_t> part_counts(std::int64_t size, std::int64_t most);

}  // namespace poprun::planner
