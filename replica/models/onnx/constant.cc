#include "replica/models/onnx/constant.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

namespace poprun::onnx_import {
namespace {

using Proto = ::onnx::TensorProto;

/// The value of an IEEE 754 binary16.
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

/// The value of a bfloat16: the upper half of a float32.
float brain_value(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

/// Appends raw little-endian elements of type T, converted.
template <typename T, typename To, typename Convert>
bool append_raw(const std::string& raw, std::int64_t elements, std::vector<To>& to,
                Convert convert) {
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

/// Elements in the field of their type (onnx.proto says which).
bool read_field(const Proto& tensor, std::int64_t elements, Constant& to) {
  switch (tensor.data_type()) {
    case Proto::FLOAT:
      return append_field(tensor.float_data(), elements, to.reals, kCast<float>);
    case Proto::DOUBLE:
      return append_field(tensor.double_data(), elements, to.reals, kCast<float>);
    case Proto::FLOAT16:
      return append_field(tensor.int32_data(), elements, to.reals, [](std::int32_t bits) {
        return half_value(static_cast<std::uint16_t>(bits));
      });
    case Proto::BFLOAT16:
      return append_field(tensor.int32_data(), elements, to.reals, [](std::int32_t bits) {
        return brain_value(static_cast<std::uint16_t>(bits));
      });
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
      return fail(ErrorCode::kData,
                  fmt::format("{} {} does not fit the device's {} bits",
                              element_name(constant.element), value, sizeof(To) * 8));
    }
    const To narrow = static_cast<To>(value);
    bytes.append(reinterpret_cast<const char*>(&narrow), sizeof(To));  // NOLINT: its bytes.
  }
  return {};
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
  return element == Proto::FLOAT || element == Proto::DOUBLE || element == Proto::FLOAT16 ||
         element == Proto::BFLOAT16;
}

bool is_integer(Element element) {
  return element == Proto::INT64 || element == Proto::INT32 || element == Proto::INT16 ||
         element == Proto::INT8 || element == Proto::UINT8 || element == Proto::UINT16 ||
         element == Proto::UINT32 || element == Proto::UINT64;
}

Result<std::int64_t> checked_elements(const Shape& shape) {
  std::int64_t product = 1;
  for (const std::int64_t d : shape) {
    if (d < 0 || (d > 0 && product > kMostElements / d)) {
      return fail(
          ErrorCode::kData,
          fmt::format("a dimension of {} in a tensor of at most {} elements", d, kMostElements));
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
  return {.element = Proto::INT64,
          .shape = std::move(shape),
          .reals = {},
          .integers = std::move(values)};
}

Constant Constant::of_reals(std::vector<float> values, Shape shape) {
  return {.element = Proto::FLOAT,
          .shape = std::move(shape),
          .reals = std::move(values),
          .integers = {}};
}

Result<Constant> read_tensor(const Proto& tensor) {
  const auto bad = [&](const std::string& why) {
    return fail(ErrorCode::kData, fmt::format("tensor '{}': {}", tensor.name(), why));
  };
  if (tensor.data_location() == Proto::EXTERNAL) {
    return bad("its data are stored in another file; save the model in one file");
  }
  Constant constant;
  constant.element = tensor.data_type();
  constant.shape.assign(tensor.dims().begin(), tensor.dims().end());
  if (!constant.real() && !is_integer(constant.element) && constant.element != Proto::BOOL) {
    return bad(fmt::format(
        "elements of type {}; available: float, double, float16, bfloat16, integers, bool",
        element_name(constant.element)));
  }
  const auto elements = checked_elements(constant.shape);
  if (!elements) {
    return bad(elements.error().message);
  }
  const bool read = tensor.has_raw_data() ? read_raw(tensor, *elements, constant)
                                          : read_field(tensor, *elements, constant);
  if (!read) {
    return bad(fmt::format("its data are not {} elements of {}", *elements,
                           element_name(constant.element)));
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
      const float value =
          constant.real() ? constant.real_at(at) : static_cast<float>(constant.integer_at(at));
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));  // NOLINT: its bytes.
    }
    return bytes;
  }
  POPRUN_CHECK(!constant.real());
  POPRUN_TRY(data == DataType::kU8 ? append_as<std::uint8_t>(constant, bytes)
                                   : append_as<std::int32_t>(constant, bytes));
  return bytes;
}

}  // namespace poprun::onnx_import
