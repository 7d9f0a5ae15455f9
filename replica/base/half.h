#pragma once

#include <cstddef>
#include <cstdint>

/// IEEE 754 binary16, held as its 16 bits: sign, 5 exponent bits, 10 fraction bits. The largest finite value is 65504,
/// and the smallest positive value is 2^-24. It is only a storage format: no arithmetic is done in it. Conversions
/// return the same bits on every processor, with or without conversion instructions.
namespace poprun {

/// The 16 bits of one number.
using Half = std::uint16_t;

/// Sets floats[i] = halves[i], exactly; signalling NaNs become quiet and keep their payload.
void to_floats(const Half* halves, float* floats, std::size_t count);

/// Sets halves[i] = floats[i] rounded to nearest, ties to even. Values of 65520 and above become infinity; NaNs stay
/// NaNs and keep the upper bits of their payload. Requires: the processor rounds to nearest.
void to_halves(const float* floats, Half* halves, std::size_t count);

/// Convert one number, with the same results as to_floats and to_halves.
float to_float(Half half);
Half to_half(float value);

/// Rounds stochastically: to the upper or the lower neighbour, each with a probability (a multiple of 1 / 8192) in
/// proportion to how close it is. The mean over
/// all values of `word` is exact for magnitudes of 2^-14 and above; below that, it is off by at most 2^-37. `word` is
/// uniformly distributed; only its upper 13 bits count. A value that a half holds exactly is unchanged. Above 65504 the
/// next value up is 65536, which becomes infinity; values of 65536 and above are rounded as in to_half.
Half to_half_at_random(float value, std::uint32_t word);

}  // namespace poprun
