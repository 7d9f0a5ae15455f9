#include "replica/graph/types.h"

#include <charconv>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace poprun {
namespace {

constexpr std::string_view kChannelsLastSuffix = "{nhwc}";

bool parse_dimension(std::string_view text, Shape& shape) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  shape.push_back(value);
  return error == std::errc{} && end == text.data() + text.size() && value >= 0;
}

bool parse_shape(std::string_view text, Shape& shape) {
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    if (!parse_dimension(text.substr(0, comma), shape)) {
      return false;
    }
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  }
  return true;
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
  if (!known || !parse_shape(rest.substr(open + 1, rest.size() - open - 2), type.shape) ||
      (type.layout == Layout::kChannelsLast && type.shape.size() != 4)) {
    return bad();
  }
  return type;
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

}  // namespace poprun
