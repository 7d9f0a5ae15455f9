#pragma once

#include <cstdint>

/// Exponentials of a row of logits relative to its largest, for softmaxes and their losses. Sums are taken in 16
/// interleaved parts, the same on every CPU. NaN stays NaN.
namespace poprun {

/// The largest of row[0, K), ignoring NaN unless it is row[0]. Requires: K >= 1.
float largest_of(const float* row, std::int64_t K);

/// The sum of exp(row[k] - largest), with a relative error of about 1e-7.
double sum_of_exp(const float* row, std::int64_t K, float largest);

/// y[k] = factor * exp(row[k] - largest).
void write_exponentials(const float* __restrict row, std::int64_t K, float largest, float factor, float* __restrict y);

}  // namespace poprun
