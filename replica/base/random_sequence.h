#pragma once

#include <cstdint>
#include <span>

namespace poprun {

/// Writes the words of philox(key, counter_low, first_high + i) (random.h) for i = 0, 1, ... until `out` is full; of
/// the last four words, only as many as fit. Cost: about 2 ns per four words with AVX2.
void philox_sequence(std::uint64_t key, std::uint64_t counter_low, std::uint64_t first_high,
                     std::span<std::uint32_t> out);

}  // namespace poprun
