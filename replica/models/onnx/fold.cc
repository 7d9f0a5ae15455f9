#include "replica/models/onnx/fold.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "replica/ops/broadcast/broadcast.h"

namespace poprun::onnx_import {
namespace {

/// Elements to go for one step of each dimension of a row-major tensor.
Shape strides_of(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * shape[d];
  }
  return strides;
}

/// Where element `at` of a row-major tensor of `shape` lies if its dimensions are `strides` apart.
std::int64_t offset_of(std::int64_t at, const Shape& shape, const Shape& strides) {
  std::int64_t offset = 0;
  for (std::size_t d = shape.size(); d-- > 0;) {
    offset += at % shape[d] * strides[d];
    at /= shape[d];
  }
  return offset;
}

/// Strides with which x is seen in a shape that it broadcasts to.
Shape repeated_strides(const Shape& x, const Shape& shape) {
  const Shape own = strides_of(x);
  Shape strides(shape.size(), 0);
  for (std::size_t d = 0; d < x.size(); ++d) {
    strides[shape.size() - x.size() + d] = x[d] == 1 ? 0 : own[d];
  }
  return strides;
}

}  // namespace

Constant picked(const Constant& x, Shape shape,
                const std::function<std::int64_t(std::int64_t)>& source) {
  Constant y{.element = x.element, .shape = std::move(shape), .reals = {}, .integers = {}};
  const std::int64_t n = y.elements();
  POPRUN_CHECK(n <= kMostFolded);
  for (std::int64_t i = 0; i < n; ++i) {
    if (x.real()) {
      y.reals.push_back(x.real_at(source(i)));
    } else {
      y.integers.push_back(x.integer_at(source(i)));
    }
  }
  return y;
}

Constant reshaped(Constant x, Shape shape) {
  x.shape = std::move(shape);
  return x;
}

Constant transposed(const Constant& x, const std::vector<std::int64_t>& perm) {
  const Shape own = strides_of(x.shape);
  Shape shape;
  Shape strides;
  for (const std::int64_t d : perm) {
    shape.push_back(x.shape[static_cast<std::size_t>(d)]);
    strides.push_back(own[static_cast<std::size_t>(d)]);
  }
  return picked(x, shape, [&](std::int64_t i) { return offset_of(i, shape, strides); });
}

Constant sliced(const Constant& x, std::size_t axis, std::int64_t begin, std::int64_t count,
                std::int64_t step) {
  Shape strides = strides_of(x.shape);
  Shape shape = x.shape;
  shape[axis] = count;
  const std::int64_t first = begin * strides[axis];
  strides[axis] *= step;
  return picked(x, shape, [&](std::int64_t i) { return first + offset_of(i, shape, strides); });
}

Constant concatenated(const std::vector<const Constant*>& parts, std::size_t axis) {
  Constant y{.element = parts[0]->element, .shape = parts[0]->shape, .reals = {}, .integers = {}};
  y.shape[axis] = 0;
  for (const Constant* part : parts) {
    y.shape[axis] += part->shape[axis];
  }
  const auto outer = std::accumulate(y.shape.begin(), y.shape.begin() + static_cast<long>(axis),
                                     std::int64_t{1}, std::multiplies<>{});
  for (std::int64_t o = 0; o < outer; ++o) {
    for (const Constant* part : parts) {
      const std::int64_t run = part->elements() / outer;
      for (std::int64_t i = o * run; i < (o + 1) * run; ++i) {
        if (y.real()) {
          y.reals.push_back(part->real_at(i));
        } else {
          y.integers.push_back(part->integer_at(i));
        }
      }
    }
  }
  return y;
}

Constant expanded(const Constant& x, const Shape& shape) {
  const Shape strides = repeated_strides(x.shape, shape);
  return picked(x, shape, [&](std::int64_t i) { return offset_of(i, shape, strides); });
}

Constant gathered(const Constant& x, const Constant& indices, std::size_t axis) {
  const std::int64_t A = x.shape[axis];
  const auto at = static_cast<std::ptrdiff_t>(axis);
  Shape shape(x.shape.begin(), x.shape.begin() + at);
  shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
  shape.insert(shape.end(), x.shape.begin() + at + 1, x.shape.end());
  const std::int64_t R = strides_of(x.shape)[axis];
  const std::int64_t P = indices.elements();
  return picked(x, shape, [&](std::int64_t i) {
    const std::int64_t index = indices.integer_at(i / R % P);
    return (i / R / P * A + (index < 0 ? index + A : index)) * R + i % R;
  });
}

Constant cast(const Constant& x, Element element) {
  Constant y{.element = element, .shape = x.shape, .reals = {}, .integers = {}};
  const std::size_t stored = x.real() ? x.reals.size() : x.integers.size();
  for (std::size_t i = 0; i < stored; ++i) {
    const double value = x.real() ? static_cast<double>(x.reals[i]) : 0.0;
    if (y.real()) {
      y.reals.push_back(x.real() ? x.reals[i] : static_cast<float>(x.integers[i]));
    } else if (element == ::onnx::TensorProto::BOOL) {
      y.integers.push_back(x.real() ? value != 0 : x.integers[i] != 0);
    } else if (x.real()) {
      constexpr double kLargest = 9.2e18;  // What is beyond has no defined value in int64.
      y.integers.push_back(std::isnan(value)
                               ? 0
                               : static_cast<std::int64_t>(std::clamp(value, -kLargest, kLargest)));
    } else {
      y.integers.push_back(x.integers[i]);
    }
  }
  return y;
}

Result<Constant> folded(const Constant& a, const Constant& b, const Binary& function) {
  const auto shape = broadcast_shape(a.shape, b.shape);
  if (!shape) {
    return fail(ErrorCode::kData, "operands whose shapes do not broadcast");
  }
  POPRUN_TRY(checked_elements(*shape));
  const Constant x = expanded(a, *shape);
  const Constant y = expanded(b, *shape);
  const auto n = static_cast<std::size_t>(x.elements());
  Constant z{.element = function.compares != nullptr ? ::onnx::TensorProto::BOOL : a.element,
             .shape = *shape,
             .reals = {},
             .integers = {}};
  for (std::size_t i = 0; i < n; ++i) {
    if (function.compares != nullptr) {
      const auto value = [i](const Constant& c) {
        return c.real() ? static_cast<double>(c.reals[i]) : static_cast<double>(c.integers[i]);
      };
      z.integers.push_back(function.compares(value(x), value(y)) ? 1 : 0);
    } else if (x.real()) {
      z.reals.push_back(function.reals(x.reals[i], y.reals[i]));
    } else {
      z.integers.push_back(function.integers(x.integers[i], y.integers[i]));
    }
  }
  return z;
}

}  // namespace poprun::onnx_import
