#include "replica/models/onnx/constant.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "replica/ops/broadcast/broadcast.h"

namespace poprun::onnx_import {
namespace {

using Proto = ::onnx::TensorProto;

float half_value(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -value : value;
  }
  const std::uint32_t widened = exponent == 31 ? 255U : exponent + 112U;
  return std::bit_cast<float>(sign | widened << 23U | fraction << 13U);
}

/// Returns the value of a bfloat16, which is the upper half of a float32.
float brain_value(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

/// Fills `to` with the converted raw little-endian elements of type T. Returns false if `raw` has the wrong size.
template <typename T, typename To, typename Convert>
bool append_raw(const std::string& raw, std::int64_t elements, std::vector<To>& to, Convert convert) {
  if (raw.size() != static_cast<std::size_t>(elements) * sizeof(T)) {
    return false;
  }
  to.resize(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < to.size(); ++i) {
    T value;
    std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
    to[i] = convert(value);
  }
  return true;
}

template <typename To>
constexpr auto kCast = [](auto value) { return static_cast<To>(value); };

bool read_raw(const Proto& tensor, std::int64_t elements, Constant& to) {
  const std::string& raw = tensor.raw_data();
  const auto integers = [&]<typename T>(T /*type*/) {
    return append_raw<T>(raw, elements, to.integers, kCast<std::int64_t>);
  };
  switch (tensor.data_type()) {
    case Proto::FLOAT:
      return append_raw<float>(raw, elements, to.reals, kCast<float>);
    case Proto::DOUBLE:
      return append_raw<double>(raw, elements, to.reals, kCast<float>);
    case Proto::FLOAT16:
      return append_raw<std::uint16_t>(raw, elements, to.reals, half_value);
    case Proto::BFLOAT16:
      return append_raw<std::uint16_t>(raw, elements, to.reals, brain_value);
    case Proto::INT8:
      return integers(std::int8_t{});
    case Proto::INT16:
      return integers(std::int16_t{});
    case Proto::INT32:
      return integers(std::int32_t{});
    case Proto::INT64:
      return integers(std::int64_t{});
    case Proto::UINT8:
    case Proto::BOOL:
      return integers(std::uint8_t{});
    case Proto::UINT16:
      return integers(std::uint16_t{});
    case Proto::UINT32:
      return integers(std::uint32_t{});
    case Proto::UINT64:
      return integers(std::uint64_t{});
    default:
      return false;
  }
}

template <typename To, typename Field, typename Convert>
bool append_field(const Field& field, std::int64_t elements, std::vector<To>& to, Convert convert) {
  if (field.size() != elements) {
    return false;
  }
  to.reserve(static_cast<std::size_t>(elements));
  for (const auto value : field) {
    to.push_back(convert(value));
  }
  return true;
}

/// Reads elements from the field that onnx.proto prescribes for their type.
bool read_field(const Proto& tensor, std::int64_t elements, Constant& to) {
  switch (tensor.data_type()) {
    case Proto::FLOAT:
      return append_field(tensor.float_data(), elements, to.reals, kCast<float>);
    case Proto::DOUBLE:
      return append_field(tensor.double_data(), elements, to.reals, kCast<float>);
    case Proto::FLOAT16:
      return append_field(tensor.int32_data(), elements, to.reals,
                          [](std::int32_t bits) { return half_value(static_cast<std::uint16_t>(bits)); });
    case Proto::BFLOAT16:
      return append_field(tensor.int32_data(), elements, to.reals,
                          [](std::int32_t bits) { return brain_value(static_cast<std::uint16_t>(bits)); });
    case Proto::INT64:
      return append_field(tensor.int64_data(), elements, to.integers, kCast<std::int64_t>);
    case Proto::UINT32:
    case Proto::UINT64:
      return append_field(tensor.uint64_data(), elements, to.integers, kCast<std::int64_t>);
    default:
      return append_field(tensor.int32_data(), elements, to.integers, kCast<std::int64_t>);
  }
}

template <typename To>
Status append_as(const Constant& constant, std::string& bytes) {
  for (std::int64_t i = 0; i < constant.elements(); ++i) {
    const std::int64_t value = constant.integer_at(i);
    if (value < std::numeric_limits<To>::min() || value > std::numeric_limits<To>::max()) {
      return fail(ErrorCode::kData, fmt::format("{} value {} does not fit in the device's {}-bit integers",
                                                element_name(constant.element), value, sizeof(To) * 8));
    }
    const To narrow = static_cast<To>(value);
    bytes.append(reinterpret_cast<const char*>(&narrow), sizeof(To));  // NOLINT: its bytes.
  }
  return {};
}

/// Returns the offset, in a tensor with these strides, of the element with row-major index `at` in `shape`.
std::int64_t offset_of(std::int64_t at, const Shape& shape, const Shape& strides) {
  std::int64_t offset = 0;
  for (std::size_t d = shape.size(); d-- > 0;) {
    offset += at % shape[d] * strides[d];
    at /= shape[d];
  }
  return offset;
}

/// Returns the strides that broadcast shape x to `shape`.
Shape repeated_strides(const Shape& x, const Shape& shape) {
  const Shape own = strides_of(x);
  Shape strides(shape.size(), 0);
  for (std::size_t d = 0; d < x.size(); ++d) {
    strides[shape.size() - x.size() + d] = x[d] == 1 ? 0 : own[d];
  }
  return strides;
}

}  // namespace

std::string element_name(Element element) {
  if (!Proto::DataType_IsValid(element)) {
    return fmt::format("type {}", element);
  }
  std::string name = Proto::DataType_Name(element);
  for (char& c : name) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

bool is_real(Element element) {
  return element == Proto::FLOAT || element == Proto::DOUBLE || element == Proto::FLOAT16 || element == Proto::BFLOAT16;
}

bool is_integer(Element element) {
  return element == Proto::INT64 || element == Proto::INT32 || element == Proto::INT16 || element == Proto::INT8 ||
         element == Proto::UINT8 || element == Proto::UINT16 || element == Proto::UINT32 || element == Proto::UINT64;
}

Result<std::int64_t> checked_elements(const Shape& shape) {
  std::int64_t product = 1;
  for (const std::int64_t d : shape) {
    if (d < 0 || (d > 0 && product > kMostElements / d)) {
      return fail(ErrorCode::kData,
                  fmt::format("a dimension of {} is negative or makes the tensor exceed the limit of {} elements", d,
                              kMostElements));
    }
    product *= d;
  }
  return product;
}

std::int64_t Constant::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t d : shape) {
    product *= d;
  }
  return product;
}

std::vector<std::int64_t> Constant::all_integers() const {
  POPRUN_CHECK(!real() && elements() <= kMostFolded);
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < elements(); ++i) {
    all.push_back(integer_at(i));
  }
  return all;
}

Constant Constant::of_integers(std::vector<std::int64_t> values, Shape shape) {
  return {.element = Proto::INT64, .shape = std::move(shape), .reals = {}, .integers = std::move(values)};
}

Constant Constant::of_reals(std::vector<float> values, Shape shape) {
  return {.element = Proto::FLOAT, .shape = std::move(shape), .reals = std::move(values), .integers = {}};
}

Result<Constant> read_tensor(const Proto& tensor) {
  const auto bad = [&](const std::string& why) {
    return fail(ErrorCode::kData, fmt::format("tensor '{}': {}", tensor.name(), why));
  };
  if (tensor.data_location() == Proto::EXTERNAL) {
    return bad("its data are stored in another file, which is read only for model.onnx = FILE");
  }
  Constant constant;
  constant.element = tensor.data_type();
  constant.shape.assign(tensor.dims().begin(), tensor.dims().end());
  if (!constant.real() && !is_integer(constant.element) && constant.element != Proto::BOOL) {
    return bad(fmt::format("its elements are of type {}; available: float, double, float16, bfloat16, integers, bool",
                           element_name(constant.element)));
  }
  const auto elements = checked_elements(constant.shape);
  if (!elements) {
    return bad(elements.error().message);
  }
  const bool read =
      tensor.has_raw_data() ? read_raw(tensor, *elements, constant) : read_field(tensor, *elements, constant);
  if (!read) {
    return bad(fmt::format("its data do not hold {} elements of type {}", *elements, element_name(constant.element)));
  }
  return constant;
}

Result<std::string> device_bytes(const Constant& constant, DataType data) {
  std::string bytes;
  const auto elements = static_cast<std::size_t>(constant.elements());
  bytes.reserve(elements * static_cast<std::size_t>(size_of(data).count()));
  if (data == DataType::kF32) {
    for (std::size_t i = 0; i < elements; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const float value = constant.real() ? constant.real_at(at) : static_cast<float>(constant.integer_at(at));
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));  // NOLINT: its bytes.
    }
    return bytes;
  }
  POPRUN_CHECK(!constant.real());
  POPRUN_TRY(data == DataType::kU8 ? append_as<std::uint8_t>(constant, bytes)
                                   : append_as<std::int32_t>(constant, bytes));
  return bytes;
}

Constant picked(const Constant& x, Shape shape, const std::function<std::int64_t(std::int64_t)>& source) {
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

Constant sliced(const Constant& x, std::size_t axis, std::int64_t begin, std::int64_t count, std::int64_t step) {
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
  const auto outer =
      std::accumulate(y.shape.begin(), y.shape.begin() + static_cast<long>(axis), std::int64_t{1}, std::multiplies<>{});
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
      constexpr double kLargest = 9.2e18;  // Larger values have no defined conversion to int64.
      y.integers.push_back(std::isnan(value) ? 0 : static_cast<std::int64_t>(std::clamp(value, -kLargest, kLargest)));
    } else {
      y.integers.push_back(x.integers[i]);
    }
  }
  return y;
}

Result<Constant> folded(const Constant& a, const Constant& b, const Binary& function) {
  const auto shape = broadcast_shape(a.shape, b.shape);
  if (!shape) {
    return fail(ErrorCode::kData, "the shapes of the operands do not broadcast");
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
