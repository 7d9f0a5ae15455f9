#pragma once

#include <functional>

#include "replica/models/onnx/constant.h"

/// What is computed while a model is imported: the shape arithmetic around Reshape, Expand and the
/// like. Requires operands and results of at most kMostFolded elements.
namespace poprun::onnx_import {

/// A constant of `shape` whose element i is `x`'s element source(i).
Constant picked(const Constant& x, Shape shape,
                const std::function<std::int64_t(std::int64_t)>& source);

Constant reshaped(Constant x, Shape shape);
Constant transposed(const Constant& x, const std::vector<std::int64_t>& perm);

/// x's elements begin, begin + step, ... along an axis.
Constant sliced(const Constant& x, std::size_t axis, std::int64_t begin, std::int64_t count,
                std::int64_t step);

/// Constants side by side. Requires shapes that differ along the axis only.
Constant concatenated(const std::vector<const Constant*>& parts, std::size_t axis);

/// Repeated to `shape`, to which x broadcasts.
Constant expanded(const Constant& x, const Shape& shape);

/// Rows of x along an axis by number; below zero from the end. Requires: numbers inside the axis.
Constant gathered(const Constant& x, const Constant& indices, std::size_t axis);

/// x with elements of another type: fractions are cut off, bools are 0 or 1.
Constant cast(const Constant& x, Element element);

/// A function of integers or of reals, element by element, with broadcasting. The result has the
/// type `element`. Null where one is not defined. Errors: kData, shapes that do not broadcast.
struct Binary {
  std::int64_t (*integers)(std::int64_t, std::int64_t) = nullptr;
  float (*reals)(float, float) = nullptr;
  bool (*compares)(double, double) = nullptr;  ///< Makes bools of any type.
};
Result<Constant> folded(const Constant& a, const Constant& b, const Binary& function);

}  // namespace poprun::onnx_import
