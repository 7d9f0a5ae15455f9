#pragma once

#include <cstddef>
#include <cstdint>

/// IEEE 754 binary16, kept as its 16 bits: sign, 5 bits of exponent, 10 of fraction. Largest finite
/// value 65504, smallest 2^-24. Nothing is computed in it; it is how values are stored.
///
/// Determinism: the same bits on every processor, whether it has instructions for this or not.
namespace poprun {

/// floats[i] = halves[i], exactly; signalling NaNs become quiet and keep their payload.
void to_floats(const std::uint16_t* halves, float* floats, std::size_t count);

/// halves[i] = floats[i] rounded to nearest, ties to even. From 65520 on infinity; NaNs stay NaNs
/// and keep the upper bits of their payload. Requires: the processor rounds to nearest.
void to_halves(const float* floats, std::uint16_t* halves, std::size_t count);

}  // namespace poprun
