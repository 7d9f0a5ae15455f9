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

/// A plan on its way through the search.
struct Candidate {
  Cycles cycles;
  Bytes bytes;  ///< Temporary.
  std::int64_t tiles = 1;
  Splits splits;
  std::size_t way = 0;  ///< View and vertex: place in the order of find_plans().
};

/// Whether `a` is the better one of two candidates of equal cycles and bytes: fewer tiles, then smaller splits, then
/// the earlier view, then the earlier vertex. A total order.
bool comes_first(const Candidate& a, const Candidate& b);

/// The candidates that no other one beats in both cycles and bytes. For any set of candidates the same ones remain, in
/// whatever order they were offered.
class Frontier {
 public:
  /// Whether some point has no more cycles and no more bytes, and less of one of them: then nothing that costs at least
  /// this much belongs here.
  [[nodiscard]] bool beats(Cycles cycles, Bytes bytes) const;

  void offer(const Candidate& candidate);

  /// Rising cycles, falling bytes.
  [[nodiscard]] const std::vector<Candidate>& points() const { return points_; }

 private:
  std::vector<Candidate> points_;
};

/// All plans of `product` that no other plan beats in both cycles and temporary bytes: rising cycles, falling bytes;
/// the first one is the fastest, the last one needs the least memory. Never empty. Of plans with equal cost the first
/// by comes_first().
///
/// Plans are: every view and vertex; every way to cut its blocks into equal parts of which none is empty, with no more
/// parallel parts than tiles, and serial steps of either input or output channels that divide their blocks evenly.
///
/// determinism: integers only. cost: milliseconds; branch and bound over the splits.
std::vector<Plan> find_plans(const Product& product, const Target& target);

/// The numbers of parts that cut `size` into equal parts, the last one smaller, none empty, with different sizes of a
/// part: for 10, these are 1, 2, 3 (4, 4, 2), 4, 5 and 10. None above `most`.
std::vector<std::int64_t> part_counts(std::int64_t size, std::int64_t most);

}  // namespace poprun::planner
