#pragma once

#include <bit>
#include <cstddef>

/// The order in which the values of replicas are combined, everywhere.
///
///   sum[a, b) = sum[a, m) + sum[m, b),   m - a = the largest power of two strictly below b - a
///
///   7 replicas:   0   1   2   3   4   5   6        ((0+1)+(2+3)) + ((4+5)+6)
///                  \ /     \ /     \ /   /
///                   +---+---+       +---+
///                       +-----+-----+
///
/// Aligned blocks whose size is a power of two are whole subtrees, so any part of a job that holds
/// one can sum it alone without changing the result.
namespace poprun::collectives {

/// How many of `count` neighbours form the left subtree. Requires: count >= 2.
constexpr std::size_t left_subtree(std::size_t count) {
  return std::bit_floor(count - 1);
}

}  // namespace poprun::collectives
