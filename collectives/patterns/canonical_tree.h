#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <vector>

/// The canonical tree: the order in which every reduction combines the values of the replicas.
///
///   sum[a, b) = sum[a, m) + sum[m, b),   m - a = the largest power of two strictly below b - a
///
///   7 replicas:   0   1   2   3   4   5   6        ((0+1)+(2+3)) + ((4+5)+6)
///                  \ /     \ /     \ /   /
///                   +---+---+       +---+
///                       +-----+-----+
///
/// Aligned blocks whose size is a power of two are whole subtrees, so a part of a job that contains all replicas of
/// such a block can sum the block on its own without changing the result.
namespace poprun::collectives {

/// Returns how many of `count` neighbours form the left subtree. Requires: count >= 2.
constexpr std::size_t left_subtree(std::size_t count) {
  return std::bit_floor(count - 1);
}

/// The replicas [first, first + count) that one node of the canonical tree sums.
struct Subtree {
  std::size_t first = 0;
  std::size_t count = 0;

  friend bool operator==(Subtree, Subtree) = default;
};

/// Returns the fewest subtrees of the canonical tree over [0, total) that hold exactly these replicas, in ascending
/// order. Requires: `replicas` are ascending and below `total`.
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

/// The replicas of a group: first, first + stride, first + 2 stride, ..
struct Members {
  std::size_t first = 0;
  std::size_t stride = 1;
  std::size_t count = 1;

  [[nodiscard]] constexpr std::size_t operator[](std::size_t index) const { return first + index * stride; }

  /// Returns the index of `replica` among the members. Requires: it is one of them.
  [[nodiscard]] constexpr std::size_t index_of(std::size_t replica) const { return (replica - first) / stride; }

  [[nodiscard]] constexpr bool contains(std::size_t replica) const {
    return replica >= first && (replica - first) % stride == 0 && index_of(replica) < count;
  }

  [[nodiscard]] std::vector<std::size_t> list() const {
    std::vector<std::size_t> list(count);
    for (std::size_t i = 0; i < count; ++i) {
      list[i] = (*this)[i];
    }
    return list;
  }

  friend constexpr bool operator==(Members, Members) = default;
};

/// Returns the group of `replica` if every `size` neighbours form a group. 12 replicas in groups of 4:
///
///   0 1 2 3 | 4 5 6 7 | 8 9 10 11
constexpr Members consecutive_members(std::size_t size, std::size_t replica) {
  return {replica / size * size, 1, size};
}

/// Returns the group of `replica` if the replicas at the same position in each block of total / size replicas form a
/// group. 12 replicas in groups of 4:
///
///   0 3 6 9 | 1 4 7 10 | 2 5 8 11
///
/// Requires: size divides total.
constexpr Members orthogonal_members(std::size_t total, std::size_t size, std::size_t replica) {
  const std::size_t groups = total / size;
  return {replica % groups, groups, size};
}

}  // namespace poprun::collectives
