#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace poprun::testing {

/// Returns sum(a * b), summed in double.
inline double weighed_sum(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

/// Compares a gradient with (L(x + h) - L(x - h)) / 2h, element by element. `loss()` returns L for the current x;
/// `tolerance` is relative to the largest gradient, which must not be 0.
template <typename Loss>
void expect_differences(std::span<float> x, const std::vector<float>& gradient, Loss loss, float h, double tolerance,
                        const std::string& name) {
  double largest = 0;
  for (const float value : gradient) {
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  EXPECT_GT(largest, 0) << name;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float kept = x[i];
    x[i] = kept + h;
    const double above = loss();
    x[i] = kept - h;
    const double below = loss();
    x[i] = kept;
    EXPECT_NEAR(gradient[i], (above - below) / (2.0 * static_cast<double>(h)), tolerance * largest)
        << name << " element " << i;
  }
}

}  // namespace poprun::testing
