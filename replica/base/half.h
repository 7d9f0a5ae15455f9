#pragma once

#include <cstddef>
#include <cstdint>

/// IEEE 754 binary16, kept as its 16 bits: sign, 5 bits of exponent, 10 of fraction. Largest finite value 65504,
/// smallest 2^-24. Nothing is computed in it; it is how values are stored.
///
/// Determinism: the same bits on every processor, whether it has instructions for this or not.
namespace poprun {

/// The bits of one.
using Half = std::uint16_t;

/// floats[i] = halves[i], exactly; signalling NaNs become quiet and keep their payload.
void to_floats(const Half* halves, float* floats, std::size_t count);

/// halves[i] = floats[i] rounded to nearest, ties to even. From 65520 on infinity; NaNs stay NaNs and keep the upper
/// bits of their payload. Requires: the processor rounds to nearest.
void to_halves(const float* floats, Half* halves, std::size_t count);

/// One number.
float to_float(Half half);
Half to_half(float value);

/// Rounded up or down at random, in proportion to how near each is, in steps of 1 / 8192: the mean over the words is
/// the number itself from 2^-14 on, and within 2^-37 of it below that. `word` is uniform; its upper 13 bits count. What
/// a half holds exactly stays itself. Above 65504 infinity is taken for 65536, and from there on it is as to_half.
Half to_half_at_random(float value, std::uint32_t word);

}  // namespace poprun
