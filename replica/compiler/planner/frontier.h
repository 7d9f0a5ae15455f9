#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/planner/splits.h"

namespace poprun::planner {

/// A plan on its way through the search.
struct Candidate {
  Cycles cycles;
  Bytes bytes;  ///< Temporary.
  std::int64_t tiles = 1;
  Splits splits;
  std::size_t way = 0;  ///< View and vertex: place in the order of find_plans().
};

/// Whether `a` is the better one of two candidates of equal cycles and bytes: fewer tiles, then
/// smaller splits, then the earlier view, then the earlier vertex. A total order.
bool comes_first(const Candidate& a, const Candidate& b);

/// The candidates that no other one beats in both cycles and bytes. For any set of candidates the
/// same ones remain, in whatever order they were offered.
class Frontier {
 public:
  /// Whether some point has no more cycles and no more bytes, and less of one of them: then nothing
  /// that costs at least this much belongs here.
  [[nodiscard]] bool beats(Cycles cycles, Bytes bytes) const;

  void offer(const Candidate& candidate);

  /// Rising cycles, falling bytes.
  [[nodiscard]] const std::vector<Candidate>& points() const { return points_; }

 private:
  std::vector<Candidate> points_;
};

}  // namespace poprun::planner
