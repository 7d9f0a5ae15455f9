#pragma once

#include <cstdint>

/// Exponentials of a row of logits around its largest, which softmaxes and their losses are made
/// of. Sums are taken in 16 interleaved parts, the same on every CPU. NaN stays NaN.
namespace poprun {

/// The largest of row[0, K) that is no NaN, where row[0] is none. Requires K >= 1.
float largest_of(const float* row, std::int64_t K);

/// The sum of exp(row[k] - largest), to some 1e-7 of it.
double sum_of_exp(const float* row, std::int64_t K, float largest);

/// y[k] = factor * exp(row[k] - largest).
void write_exponentials(const float* __restrict row, std::int64_t K, float largest, float factor,
                        float* __restrict y);

}  // namespace poprun
