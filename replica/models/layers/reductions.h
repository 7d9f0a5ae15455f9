#pragma once

#include <cstdint>
#include <string>

#include "replica/ops/builder/builder.h"

/// Reductions over axes, made of the operators that reduce and those that work element by element.
namespace poprun::layers {

enum class Reduction : std::uint8_t {
  kSum,
  kMean,
  kMax,
  kMin,
  kProd,
  kL1,         ///< sum |x|
  kL2,         ///< sqrt(sum x^2); its gradient needs a sum that is not zero.
  kSumSquare,  ///< sum x^2
  kLogSum,     ///< ln(sum x)
  kLogSumExp,  ///< ln(sum exp(x)), computed around the largest x.
};

/// x f32 of any layout reduced over `axes` (within its rank, no order). With `keep_dims` y has x's
/// rank and layout and size 1 along the axes; without, it is row-major and has no such dimensions.
TensorId reduce(Builder& builder, const std::string& name, Reduction reduction, TensorId x,
                const Shape& axes, bool keep_dims);

}  // namespace poprun::layers
