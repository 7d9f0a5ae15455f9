#pragma once

#include <cstdint>
#include <string>

#include "replica/ops/builder/builder.h"

/// Reductions over axes, made of reduction operators and elementwise ones.
namespace poprun::layers {

enum class Reduction : std::uint8_t {
  kSum,
  kMean,
  kMax,
  kMin,
  kProd,
  kL1,         ///< sum |x|
  kL2,         ///< sqrt(sum x^2); its gradient needs a non-zero sum.
  kSumSquare,  ///< sum x^2
  kLogSum,     ///< ln(sum x)
  kLogSumExp,  ///< ln(sum exp(x)), computed relative to the largest x.
};

/// Reduces x, f32 in any layout, over `axes` (within its rank, in any order). With `keep_dims` y
/// has x's rank and layout and size 1 along the axes; without, it is row-major and lacks these
/// dimensions.
TensorId reduce(Builder& builder, const std::string& name, Reduction reduction, TensorId x,
                const Shape& axes, bool keep_dims);

}  // namespace poprun::layers
