#pragma once

#include <cstdint>

/// Exponentials of a row of logits relative to its largest one, for softmaxes and their losses. Sums are taken in 16
/// interleaved parts, so they are the same on every CPU. NaN stays NaN.
namespace poprun {

/// Returns the largest of row[0, K), ignoring NaN unless row[0] is NaN. Requires: K >= 1.
float largest_of(const float* row, std::int64_t K);

/// Returns the sum of exp(row[k] - largest), with a relative error of about 1e-7.
double sum_of_exp(const float* row, std::int64_t K, float largest);

/// Sets y[k] = factor * exp(row[k] - largest).
void write_exponentials(const float* __restrict row, std::int64_t K, float largest, float factor, float* __restrict y);

}  // namespace poprun
