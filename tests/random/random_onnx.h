#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace poprun::testing {

/// A small ONNX model drawn at random: dense layers of a few elements, whose weights and values have names that the
/// compiler makes itself, or that are awkward in another way.
///
/// `below`: draws from 0 to n - 1. `features`: elements of a sample. `outputs`: of the prediction.
std::string random_onnx(const std::function<std::uint64_t(std::uint64_t)>& below, std::int64_t features,
                        std::int64_t outputs);

}  // namespace poprun::testing
