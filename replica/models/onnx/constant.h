#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <onnx/onnx_pb.h>

#include "replica/base/error.h"
#include "replica/graph/types.h"

/// ONNX values that are known while a model is imported: initialisers, constants, shapes and what is computed from
/// them.
/// Computation while a model is imported: the shape arithmetic around Reshape, Expand and the like. Requires
/// operands and results of at most kMostFolded elements.
namespace poprun::onnx_import {

/// onnx::TensorProto::DataType, as the files have it.
using Element = std::int32_t;

/// `float`, `int64`, ...: ONNX's names.
std::string element_name(Element element);

bool is_real(Element element);     ///< float, double, float16, bfloat16.
bool is_integer(Element element);  ///< int8 to int64, uint8 to uint64, not bool.

/// Most elements that are computed with or stored at import; larger weights come as they are.
inline constexpr std::int64_t kMostFolded = std::int64_t{1} << 22;

/// Most elements of any tensor: 2^31 - 1, the bound of device addresses.
inline constexpr std::int64_t kMostElements = (std::int64_t{1} << 31) - 1;

/// The number of elements, or nothing (kData) where a dimension is negative or there are more than kMostElements. A
/// shape of rank 0 has one.
Result<std::int64_t> checked_elements(const Shape& shape);

/// A tensor on the host. Real elements are kept as float32, integers and bools as int64. A tensor of equal elements may
/// keep one for all.
struct Constant {
  Element element = ::onnx::TensorProto::FLOAT;
  Shape shape;
  std::vector<float> reals;            ///< Of real types: every element, or one for all.
  std::vector<std::int64_t> integers;  ///< Of the others, likewise.

  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] bool real() const { return is_real(element); }

  /// Element i in row-major order. Requires the matching kind of type.
  [[nodiscard]] float real_at(std::int64_t i) const {
    return reals[reals.size() == 1 ? 0 : static_cast<std::size_t>(i)];
  }
  [[nodiscard]] std::int64_t integer_at(std::int64_t i) const {
    return integers[integers.size() == 1 ? 0 : static_cast<std::size_t>(i)];
  }

  /// All integers in order. Requires an integer type or bool and at most kMostFolded elements.
  [[nodiscard]] std::vector<std::int64_t> all_integers() const;

  static Constant of_integers(std::vector<std::int64_t> values, Shape shape);
  static Constant of_reals(std::vector<float> values, Shape shape);
};

/// Reads a stored tensor. Errors: kData, its name and what is wrong: type, sizes, data in another file.
Result<Constant> read_tensor(const ::onnx::TensorProto& tensor);

/// The elements as a device tensor of type `data` holds them, row-major: f32 of any type, i32 and u8 of integers and
/// bools. Errors: kData, an integer does not fit.
Result<std::string> device_bytes(const Constant& constant, DataType data);

/// A constant of `shape` whose element i is `x`'s element source(i).
Constant picked(const Constant& x, Shape shape, const std::function<std::int64_t(std::int64_t)>& source);

Constant reshaped(Constant x, Shape shape);
Constant transposed(const Constant& x, const std::vector<std::int64_t>& perm);

/// x's elements begin, begin + step, ... along an axis.
Constant sliced(const Constant& x, std::size_t axis, std::int64_t begin, std::int64_t count, std::int64_t step);

/// Constants side by side. Requires shapes that differ along the axis only.
Constant concatenated(const std::vector<const Constant*>& parts, std::size_t axis);

/// Repeated to `shape`, to which x broadcasts.
Constant expanded(const Constant& x, const Shape& shape);

/// Rows of x along an axis by number; below zero from the end. Requires: numbers inside the axis.
Constant gathered(const Constant& x, const Constant& indices, std::size_t axis);

/// x with elements of another type: fractions are cut off, bools are 0 or 1.
Constant cast(const Constant& x, Element element);

/// A function of integers or of reals, element by element, with broadcasting. The result has the type `element`. Null
/// where one is not defined. Errors: kData, shapes that do not broadcast.
struct Binary {
  std::int64_t (*integers)(std::int64_t, std::int64_t) = nullptr;
  float (*reals)(float, float) = nullptr;
  bool (*compares)(double, double) = nullptr;  ///< Makes bools of any type.
};
Result<Constant> folded(const Constant& a, const Constant& b, const Binary& function);

}  // namespace poprun::onnx_import
