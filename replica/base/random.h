#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

/// Counter-based random numbers: a value is a pure function of (key, counter), independent of who draws it, in which
/// order, and on how many threads. Philox4x32-10 by Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
/// 1, 2, 3", SC'11, with their constants.
namespace poprun {

/// Returns four independent uniform 32-bit words for each (key, counter). Cost: about 20 ns.
std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high);

/// Derives a key from a seed and a name (FNV-1a of the name, mixed with the seed), so that streams share no numbers.
std::uint64_t random_key(std::uint64_t seed, std::string_view name);

/// Converts the word to a float in [0, 1), with 24 random bits.
constexpr float unit_float(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1.0p-24F;
}

/// Writes the words of philox(key, counter_low, first_high + i) for i = 0, 1, ... until `out` is full; of
/// the last four words, only as many as fit. Cost: about 4 ns per four words with AVX2.
void philox_sequence(std::uint64_t key, std::uint64_t counter_low, std::uint64_t first_high,
                     std::span<std::uint32_t> out);

}  // namespace poprun
