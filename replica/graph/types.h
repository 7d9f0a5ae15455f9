#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"

namespace poprun {

enum class DataType : std::uint8_t { kF32, kF16, kI32, kU8 };

Bytes size_of(DataType type);

/// Returns "f32", "f16", "i32" or "u8".
std::string_view element_name(DataType type);

/// Order of a tensor's elements in memory. Shapes do not depend on it: images are [N, C, H, W] in either layout.
enum class Layout : std::uint8_t {
  kRowMajor,      ///< Last dimension fastest.
  kChannelsLast,  ///< Rank 4 only: stored as [N, H, W, C]. Convolutions use it.
};

using Shape = std::vector<std::int64_t>;

struct TensorType {
  DataType data = DataType::kF32;
  Shape shape;
  Layout layout = Layout::kRowMajor;

  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] Bytes bytes() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

/// Returns text like `f32[16,32,28,28]{nhwc}`; row-major types have no suffix, and scalars are `f32[]`.
std::string to_text(const TensorType& type);

/// Parses the text of `to_text`. Errors: kUsage, quoting the text.
Result<TensorType> parse_type(std::string_view text);

/// Returns the strides of a row-major tensor, in elements.
Shape strides_of(const Shape& shape);

/// Returns a tensor's elements in row-major order: `bytes` itself, or a copy in `storage`.
std::span<const std::byte> row_major(const TensorType& type, std::span<const std::byte> bytes,
                                     std::vector<std::byte>& storage);

using Attribute = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>>;

/// An operation's parameters, sorted by name. A getter requires that the attribute exists and has the getter's type.
/// The operators' shape inference checks attributes that come from outside; all later code can rely on them.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Attribute>> values) : values_(values) {}

  void set(std::string name, Attribute value) { values_[std::move(name)] = std::move(value); }
  [[nodiscard]] bool has(const std::string& name) const { return values_.contains(name); }

  [[nodiscard]] std::int64_t integer(const std::string& name) const;
  [[nodiscard]] double real(const std::string& name) const;
  [[nodiscard]] const std::string& text(const std::string& name) const;
  [[nodiscard]] const std::vector<std::int64_t>& integers(const std::string& name) const;
  [[nodiscard]] const std::vector<double>& reals(const std::string& name) const;

  [[nodiscard]] const std::map<std::string, Attribute>& values() const { return values_; }
  friend bool operator==(const Attributes&, const Attributes&) = default;

 private:
  std::map<std::string, Attribute> values_;
};

/// Returns text like `bound=0.5 pad=[1,1] rank=2 layout="nhwc" values=[0.5,2.0]`. Reals are written with a point or an
/// exponent, and with all their digits, so that parsing returns the same value and type. In strings, a backslash
/// escapes quotes and backslashes. An empty list is always a list of integers.
std::string to_text(const Attributes& attributes);

/// Parses the text of `to_text`. Errors: kUsage, quoting the faulty text.
Result<Attributes> parse_attributes(std::string_view text);

}  // namespace poprun
