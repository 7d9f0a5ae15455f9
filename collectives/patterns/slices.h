#pragma once

#include <algorithm>
#include <cstddef>

namespace poprun::collectives {

/// Bytes [begin, end) of a vector.
struct Slice {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] constexpr std::size_t size() const { return end - begin; }
  friend constexpr bool operator==(Slice, Slice) = default;
};

/// Bytes of a cache line, the granularity of slices: two replicas never write into the same line of
/// an aligned vector, and no element is cut.
inline constexpr std::size_t kLineBytes = 64;

/// Part `part` of `count` bytes cut into `parts` slices, in order and without gaps. Slices begin at
/// multiples of a line and differ by at most one line; some may be empty.
/// Requires: part < parts.
constexpr Slice slice_of(std::size_t count, std::size_t parts, std::size_t part) {
  const std::size_t lines = (count + kLineBytes - 1) / kLineBytes;
  const auto edge = [&](std::size_t index) {
    const std::size_t line = lines / parts * index + std::min(index, lines % parts);
    return std::min(line * kLineBytes, count);
  };
  return {edge(part), edge(part + 1)};
}

/// The bytes that both slices hold; empty if they do not overlap.
constexpr Slice overlap(Slice a, Slice b) {
  const std::size_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace poprun::collectives
