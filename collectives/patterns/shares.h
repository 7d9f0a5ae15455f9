#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace poprun::collectives {

/// Bytes [begin, end) of a vector.
struct Slice {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] constexpr std::size_t size() const { return end - begin; }
  friend constexpr bool operator==(Slice, Slice) = default;
};

/// Size of a cache line, in bytes. Slices begin at multiples of it, so that two replicas never write into the same line
/// of an aligned vector, and no element is split.
inline constexpr std::size_t kLineBytes = 64;

/// Cuts `count` bytes into `parts` slices, in order and without gaps, and returns slice `part`. Slices begin at
/// multiples of a line, and their sizes differ by at most one line. Some may be empty. Requires: part < parts.
constexpr Slice slice_of(std::size_t count, std::size_t parts, std::size_t part) {
  const std::size_t lines = (count + kLineBytes - 1) / kLineBytes;
  const auto edge = [&](std::size_t index) {
    const std::size_t line = lines / parts * index + std::min(index, lines % parts);
    return std::min(line * kLineBytes, count);
  };
  return {edge(part), edge(part + 1)};
}

/// Returns the bytes that both slices hold; empty if they do not overlap.
constexpr Slice overlap(Slice a, Slice b) {
  const std::size_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// Returns the share of an all-reduce's elements that each host combines, chosen so that the busiest direction of any
/// host's link carries as little as possible. Host h of H has sums[h] sums of every element. With share f, its link
/// carries, in units of the whole vector:
///
///   sends      sums[h] (1 - f) + (H - 1) f     its sums to the others, its results to all of them
///   receives   (1 - f) + f (sum of the others' sums)
///
///   sums 1 1 1 1   shares 1/4 each, 1.5 both ways: the minimum
///   sums 2 1       shares 1 0, 1 both ways, instead of 1.5 with equal shares
///
/// Shares add up to 1. The same arguments give the same shares on every host. Requires: every sum > 0.
inline std::vector<double> shares_of(std::span<const std::size_t> sums) {
  struct Range {
    double least = 0;
    double most = 1;
  };
  const auto hosts = static_cast<double>(sums.size());
  const auto total = static_cast<double>(std::accumulate(sums.begin(), sums.end(), std::size_t{0}));
  std::vector<Range> ranges(sums.size());
  // Returns whether there are shares with which no host carries more than `load`.
  const auto fits = [&](double load) {
    double least = 0;
    double most = 0;
    for (std::size_t h = 0; h < sums.size(); ++h) {
      const auto mine = static_cast<double>(sums[h]);
      Range& range = ranges[h] = {};
      // f * slope <= room must hold, once for what the host sends and once for what it receives.
      for (const auto& [slope, room] :
           {std::pair{hosts - 1 - mine, load - mine}, std::pair{total - mine - 1, load - 1}}) {
        if (slope > 0) {
          range.most = std::min(range.most, room / slope);
        } else if (slope < 0) {
          range.least = std::max(range.least, room / slope);
        } else if (room < 0) {
          return false;
        }
      }
      if (range.least > range.most) {
        return false;
      }
      least += range.least;
      most += range.most;
    }
    return least <= 1 && most >= 1;
  };
  double below = 0;
  double load = total;  // This load always fits, because total >= hosts.
  for (int i = 0; i < 50; ++i) {
    const double middle = (below + load) / 2;
    (fits(middle) ? load : below) = middle;
  }
  fits(load);
  double least = 0;
  double room = 0;
  for (const Range& range : ranges) {
    least += range.least;
    room += range.most - range.least;
  }
  std::vector<double> shares;
  for (const Range& range : ranges) {
    const double part = room > 0 ? (range.most - range.least) / room : 0;
    shares.push_back(range.least + (1 - least) * part);
  }
  return shares;
}

}  // namespace poprun::collectives
