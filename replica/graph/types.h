#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"

namespace poprun {

enum class DataType : std::uint8_t { kF32, kF16, kI32, kU8 };

/// Bytes of one element.
Bytes size_of(DataType type);

/// "f32", "f16", "i32", "u8".
std::string_view element_name(DataType type);

/// Order of a tensor's elements in memory. Shapes are always logical: images are [N, C, H, W] in either layout.
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

/// Returns text like `f32[16,32,28,28]{nhwc}`; row-major types have no suffix, scalars are `f32[]`.
std::string to_text(const TensorType& type);

/// Parses the text of `to_text`. Errors: kUsage, quoting the text.
Result<TensorType> parse_type(std::string_view text);

/// Returns a tensor's elements in row-major order: `bytes` itself, or a copy in `storage`.
std::span<const std::byte> row_major(const TensorType& type, std::span<const std::byte> bytes,
                                     std::vector<std::byte>& storage);

}  // namespace poprun
