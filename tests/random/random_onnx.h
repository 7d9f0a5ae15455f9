#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace poprun::testing {

/// Draws a small ONNX model: dense layers of a few elements, whose weights and values have names that the compiler also
/// makes up, or that are awkward in another way.
///
/// `below(n)` draws a number from 0 to n - 1. A sample has `features` elements, a prediction has `outputs`.
std::string random_onnx(const std::function<std::uint64_t(std::uint64_t)>& below, std::int64_t features,
                        std::int64_t outputs);

}  // namespace poprun::testing
