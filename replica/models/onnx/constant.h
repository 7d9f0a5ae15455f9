#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <onnx/onnx_pb.h>

#include "replica/base/error.h"
#include "replica/graph/types.h"

/// ONNX values known at import: initialisers, constants, shapes and results computed from them. Constant folding
/// computes the results. It is used for shape arithmetic around nodes such as Reshape, on at most kMostFolded elements.
namespace poprun::onnx_import {

/// An ONNX element type: a value of onnx::TensorProto::DataType.
using Element = std::int32_t;

/// Returns ONNX's name of the type in lower case, such as `float` or `int64`.
std::string element_name(Element element);

bool is_real(Element element);     ///< float, double, float16, bfloat16.
bool is_integer(Element element);  ///< int8 to int64 and uint8 to uint64, but not bool.

inline constexpr std::int64_t kMostFolded = std::int64_t{1} << 22;          ///< Limit for folding, in elements.
inline constexpr std::int64_t kMostElements = (std::int64_t{1} << 31) - 1;  ///< Limit set by device addressing.

/// Returns the number of elements (1 for rank 0). Errors: kData for a negative dimension or more than kMostElements.
Result<std::int64_t> checked_elements(const Shape& shape);

/// A tensor on the host. Reals are stored as float32, other types as int64. If all elements are equal, one suffices.
struct Constant {
  Element element = ::onnx::TensorProto::FLOAT;
  Shape shape;
  std::vector<float> reals;            ///< For real types: every element, or a single one if all are equal.
  std::vector<std::int64_t> integers;  ///< For all other types, in the same way.

  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] bool real() const { return is_real(element); }

  /// Returns element i in row-major order. Requires: a real type for real_at, any other type for integer_at.
  [[nodiscard]] float real_at(std::int64_t i) const {
    return reals[reals.size() == 1 ? 0 : static_cast<std::size_t>(i)];
  }
  [[nodiscard]] std::int64_t integer_at(std::int64_t i) const {
    return integers[integers.size() == 1 ? 0 : static_cast<std::size_t>(i)];
  }

  /// Returns all elements in order. Requires: an integer type or bool, and at most kMostFolded elements.
  [[nodiscard]] std::vector<std::int64_t> all_integers() const;

  static Constant of_integers(std::vector<std::int64_t> values, Shape shape);
  static Constant of_reals(std::vector<float> values, Shape shape);
};

/// Reads a stored tensor. Errors name the tensor: kData for an unsupported type, wrong sizes or data in another file.
Result<Constant> read_tensor(const ::onnx::TensorProto& tensor);

/// Returns the bytes of a row-major device tensor of type `data` with these elements. f32 accepts elements of any type;
/// i32 and u8 accept integers and bools. Errors: kData if an integer does not fit.
Result<std::string> device_bytes(const Constant& constant, DataType data);

/// Returns a constant of shape `shape` whose element i is element source(i) of x.
Constant picked(const Constant& x, Shape shape, const std::function<std::int64_t(std::int64_t)>& source);

Constant reshaped(Constant x, Shape shape);
Constant transposed(const Constant& x, const std::vector<std::int64_t>& perm);

/// Returns elements begin, begin + step, ... of x along an axis.
Constant sliced(const Constant& x, std::size_t axis, std::int64_t begin, std::int64_t count, std::int64_t step);

/// Concatenates constants along an axis. Requires: their shapes differ only along that axis.
Constant concatenated(const std::vector<const Constant*>& parts, std::size_t axis);

/// Broadcasts x to `shape`. Requires: x broadcasts to it.
Constant expanded(const Constant& x, const Shape& shape);

/// Returns the rows of x that `indices` select. Negative indices count from the end. Requires: all are in range.
Constant gathered(const Constant& x, const Constant& indices, std::size_t axis);

/// Returns x converted to a different element type. Reals are truncated to integers, and bools become 0 or 1.
Constant cast(const Constant& x, Element element);

/// An elementwise function of two operands: one function per kind of element, null if it is undefined for that kind.
struct Binary {
  std::int64_t (*integers)(std::int64_t, std::int64_t) = nullptr;
  float (*reals)(float, float) = nullptr;
  bool (*compares)(double, double) = nullptr;  ///< Compares elements of any type; the result is bool.
};
/// Applies a function with broadcasting. The result is bool or of a's type. Errors: kData if shapes do not broadcast.
Result<Constant> folded(const Constant& a, const Constant& b, const Binary& function);

}  // namespace poprun::onnx_import
