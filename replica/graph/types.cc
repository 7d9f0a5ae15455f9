#include "replica/graph/types.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iomanip>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

constexpr std::string_view kChannelsLastSuffix = "{nhwc}";

struct Printer {
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const {
    std::string text = fmt::format("{}", value);  // Shortest text that parses back to `value`.
    if (text.find_first_of(".en") == std::string::npos) {
      text += ".0";
    }
    return text;
  }
  std::string operator()(const std::string& value) const {
    std::ostringstream text;
    text << std::quoted(value);
    return std::move(text).str();
  }
  template <typename T>
  std::string operator()(const std::vector<T>& list) const {
    std::string text;
    for (const T value : list) {
      text += (text.empty() ? "" : ",") + (*this)(value);
    }
    return "[" + text + "]";
  }
};

template <typename T>
std::optional<std::vector<T>> parse_list(std::string_view text) {
  std::vector<T> values;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const auto value = parse_number<T>(text.substr(0, comma));
    if (!value) {
      return std::nullopt;
    }
    values.push_back(*value);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  }
  return values;
}

std::optional<Attribute> parse_value(std::string_view text) {
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    const std::string_view list = text.substr(1, text.size() - 2);
    if (const auto integers = parse_list<std::int64_t>(list)) {
      return *integers;
    }
    if (const auto reals = parse_list<double>(list)) {
      return *reals;
    }
    return std::nullopt;
  }
  if (const auto integer = parse_number<std::int64_t>(text)) {
    return *integer;
  }
  if (const auto real = parse_number<double>(text)) {
    return *real;
  }
  return std::nullopt;
}

/// Reads the next value, which ends at a space outside quotes.
std::optional<Attribute> read_value(std::istringstream& words) {
  std::string text;
  if (words.peek() != '"') {
    words >> text;
    return parse_value(text);
  }
  const bool is_text = words >> std::quoted(text) && (words.peek() == ' ' || words.peek() == EOF);
  return is_text ? std::optional<Attribute>(text) : std::nullopt;
}

template <typename T>
const T& get(const std::map<std::string, Attribute>& values, const std::string& name) {
  const auto found = values.find(name);
  POPRUN_CHECK(found != values.end());
  const T* value = std::get_if<T>(&found->second);
  POPRUN_CHECK(value != nullptr);
  return *value;
}

}  // namespace

std::string_view element_name(DataType type) {
  switch (type) {
    case DataType::kF32:
      return "f32";
    case DataType::kF16:
      return "f16";
    case DataType::kI32:
      return "i32";
    case DataType::kU8:
      return "u8";
  }
  return "?";
}

Bytes size_of(DataType type) {
  switch (type) {
    case DataType::kU8:
      return Bytes{1};
    case DataType::kF16:
      return Bytes{2};
    case DataType::kF32:
    case DataType::kI32:
      return Bytes{4};
  }
  return Bytes{0};
}

std::int64_t TensorType::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t dimension : shape) {
    product *= dimension;
  }
  return product;
}

Bytes TensorType::bytes() const {
  return size_of(data) * elements();
}

std::string to_text(const TensorType& type) {
  return fmt::format("{}[{}]{}", element_name(type.data), fmt::join(type.shape, ","),
                     type.layout == Layout::kChannelsLast ? kChannelsLastSuffix : "");
}

Result<TensorType> parse_type(std::string_view text) {
  const auto bad = [&] {
    return fail(ErrorCode::kUsage, fmt::format("'{}' is not a tensor type such as f32[2,3]", text));
  };
  TensorType type;
  std::string_view rest = text;
  if (rest.ends_with(kChannelsLastSuffix)) {
    type.layout = Layout::kChannelsLast;
    rest.remove_suffix(kChannelsLastSuffix.size());
  }
  const std::size_t open = rest.find('[');
  if (open == std::string_view::npos || !rest.ends_with(']')) {
    return bad();
  }
  bool known = false;
  for (const DataType data : {DataType::kF32, DataType::kF16, DataType::kI32, DataType::kU8}) {
    if (element_name(data) == rest.substr(0, open)) {
      type.data = data;
      known = true;
    }
  }
  const auto shape = parse_list<std::int64_t>(rest.substr(open + 1, rest.size() - open - 2));
  if (!known || !shape || std::ranges::any_of(*shape, [](std::int64_t size) { return size < 0; }) ||
      (type.layout == Layout::kChannelsLast && shape->size() != 4)) {
    return bad();
  }
  type.shape = *shape;
  return type;
}

Shape strides_of(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * shape[d];
  }
  return strides;
}

std::span<const std::byte> row_major(const TensorType& type, std::span<const std::byte> bytes,
                                     std::vector<std::byte>& storage) {
  if (type.layout == Layout::kRowMajor) {
    return bytes;
  }
  const auto size = static_cast<std::size_t>(size_of(type.data).count());
  const auto channels = static_cast<std::size_t>(type.shape[1]);
  const auto pixels = static_cast<std::size_t>(type.shape[2] * type.shape[3]);
  const std::size_t images = static_cast<std::size_t>(type.shape[0]);
  storage.resize(bytes.size());
  for (std::size_t n = 0; n < images; ++n) {
    for (std::size_t p = 0; p < pixels; ++p) {
      for (std::size_t c = 0; c < channels; ++c) {
        std::memcpy(&storage[((n * channels + c) * pixels + p) * size],
                    &bytes[((n * pixels + p) * channels + c) * size], size);
      }
    }
  }
  return storage;
}

std::int64_t Attributes::integer(const std::string& name) const {
  return get<std::int64_t>(values_, name);
}
double Attributes::real(const std::string& name) const {
  return get<double>(values_, name);
}
const std::string& Attributes::text(const std::string& name) const {
  return get<std::string>(values_, name);
}
const std::vector<std::int64_t>& Attributes::integers(const std::string& name) const {
  return get<std::vector<std::int64_t>>(values_, name);
}
const std::vector<double>& Attributes::reals(const std::string& name) const {
  return get<std::vector<double>>(values_, name);
}

std::string to_text(const Attributes& attributes) {
  std::string text;
  for (const auto& [name, value] : attributes.values()) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, std::visit(Printer{}, value));
  }
  return text;
}

Result<Attributes> parse_attributes(std::string_view text) {
  Attributes attributes;
  std::istringstream words{std::string{text}};
  while ((words >> std::ws).peek() != EOF) {
    const auto begin = static_cast<std::size_t>(words.tellg());
    std::string name;
    std::getline(words, name, '=');
    const bool is_named = !words.eof() && !name.empty() && name.find(' ') == std::string::npos;
    const std::optional<Attribute> value = is_named ? read_value(words) : std::nullopt;
    if (!value) {
      return fail(ErrorCode::kUsage, fmt::format("'{}' is not an attribute such as pad=[1,1]",
                                                 text.substr(begin, text.find(' ', begin) - begin)));
    }
    attributes.set(name, *value);
  }
  return attributes;
}

}  // namespace poprun
