#pragma once

#include <cstddef>
#include <vector>

namespace poprun::collectives {

/// The replicas of a group: first, first + stride, first + 2 stride, ..
struct Members {
  std::size_t first = 0;
  std::size_t stride = 1;
  std::size_t count = 1;

  [[nodiscard]] constexpr std::size_t operator[](std::size_t index) const {
    return first + index * stride;
  }

  /// The index of `replica` among the members. Requires: it is one of them.
  [[nodiscard]] constexpr std::size_t index_of(std::size_t replica) const {
    return (replica - first) / stride;
  }

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

/// The group of `replica` if every `size` neighbours form a group. 12 replicas in groups of 4:
///
///   0 1 2 3 | 4 5 6 7 | 8 9 10 11
constexpr Members consecutive_members(std::size_t size, std::size_t replica) {
  return {replica / size * size, 1, size};
}

/// The group of `replica` if replicas with equal positions in blocks of total / size form a group.
/// 12 replicas in groups of 4:
///
///   0 3 6 9 | 1 4 7 10 | 2 5 8 11
///
/// Requires: size divides total.
constexpr Members orthogonal_members(std::size_t total, std::size_t size, std::size_t replica) {
  const std::size_t groups = total / size;
  return {replica % groups, groups, size};
}

}  // namespace poprun::collectives
