#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "collectives/patterns/canonical_tree.h"

namespace poprun::collectives {

/// The replicas [first, first + count) that one node of the canonical tree sums.
struct Subtree {
  std::size_t first = 0;
  std::size_t count = 0;

  friend bool operator==(Subtree, Subtree) = default;
};

/// The fewest subtrees of the canonical tree over [0, total) that hold these replicas and no
/// others, ascending. Requires: `replicas` ascending, below `total`.
///
///   7 replicas, those of one host in brackets:   0 1 [2 3 4 5] 6   ->   [2 3] [4 5]
inline std::vector<Subtree> subtrees_of(std::span<const std::size_t> replicas, std::size_t total) {
  std::vector<Subtree> subtrees;
  const auto descend = [&](const auto& self, std::size_t first, std::size_t count) -> void {
    const auto begin = std::ranges::lower_bound(replicas, first);
    const auto end = std::ranges::lower_bound(replicas, first + count);
    const auto held = static_cast<std::size_t>(end - begin);
    if (held == count) {
      subtrees.push_back({first, count});
    } else if (held > 0) {
      self(self, first, left_subtree(count));
      self(self, first + left_subtree(count), count - left_subtree(count));
    }
  };
  descend(descend, 0, total);
  return subtrees;
}

}  // namespace poprun::collectives
