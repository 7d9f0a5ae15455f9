#include "hostio/formats/idx.h"

#include <array>

#include <fmt/format.h>

#include "hostio/formats/content.h"
#include "hostio/formats/open_file.h"

namespace poprun::hostio {
namespace {

constexpr std::size_t kHeaderPrefix = std::size_t{64} << 10;

Result<IdxShape> take_shape(Content& content, std::string_view name) {
  std::array<std::uint8_t, 4> magic{};
  POPRUN_ASSIGN(const std::size_t had, content.read(std::as_writable_bytes(std::span(magic))));
  if (had < magic.size()) {
    return fail(ErrorCode::kData, fmt::format("{}: needed an IDX header of at least 8 bytes, had {}", name, had));
  }
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != 0x08) {
    return fail(ErrorCode::kData, fmt::format("{}: needed an IDX file of unsigned bytes (begins 00 00 08), had {:02x} "
                                              "{:02x} {:02x}",
                                              name, magic[0], magic[1], magic[2]));
  }
  const std::size_t rank = magic[3];
  if (rank < 1 || rank > kIdxRankMax) {
    return fail(ErrorCode::kData, fmt::format("{}: needed 1 to {} dimensions, had {}", name, kIdxRankMax, rank));
  }
  std::array<std::uint8_t, 4 * kIdxRankMax> words{};
  POPRUN_ASSIGN(const std::size_t words_had, content.read(std::as_writable_bytes(std::span(words)).first(4 * rank)));
  if (words_had < 4 * rank) {
    return fail(ErrorCode::kData, fmt::format("{}: needed an IDX header of {} bytes for {} dimensions, had {}", name,
                                              4 + 4 * rank, rank, 4 + words_had));
  }
  IdxShape shape;
  shape.elements = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    std::uint32_t dim = 0;
    for (std::size_t byte = 0; byte < 4; ++byte) {
      dim = (dim << 8) | words[4 * i + byte];
    }
    shape.dims.push_back(dim);
    if (__builtin_mul_overflow(shape.elements, std::uint64_t{dim}, &shape.elements) ||
        shape.elements > kIdxElementsMax) {
      return fail(ErrorCode::kData, fmt::format("{}: dimensions {} hold more than {} elements, the limit", name,
                                                fmt::join(shape.dims, " x "), kIdxElementsMax));
    }
  }
  return shape;
}

/// Reads as many elements as the shape says.
Result<std::vector<std::uint8_t>> take_elements(Content& content, const IdxShape& shape, std::string_view name) {
  POPRUN_ASSIGN(std::vector<std::uint8_t> elements, content.take<std::uint8_t>(shape.elements));
  if (elements.size() < shape.elements) {
    return fail(ErrorCode::kData, fmt::format("{}: truncated: needed {} elements ({}), had {}", name, shape.elements,
                                              fmt::join(shape.dims, " x "), elements.size()));
  }
  return elements;
}

}  // namespace

Result<IdxShape> parse_idx_shape(std::span<const std::byte> bytes, std::string_view name) {
  Content content(bytes, name);
  return take_shape(content, name);
}

Result<IdxArray> parse_idx(std::span<const std::byte> bytes, std::string_view name, const FileScope& scope) {
  Content content(bytes, name, scope);
  IdxArray array;
  POPRUN_ASSIGN(array.shape, take_shape(content, name));
  POPRUN_ASSIGN(array.elements, take_elements(content, array.shape, name));
  // Reading past the end also lets zlib check the checksum after the last byte.
  POPRUN_ASSIGN(const std::vector<std::byte> trailing, content.take<std::byte>(1));
  if (!trailing.empty()) {
    return fail(ErrorCode::kData, fmt::format("{}: needed {} elements ({}), had more bytes after them", name,
                                              array.shape.elements, fmt::join(array.shape.dims, " x ")));
  }
  return array;
}

Result<IdxShape> read_idx_shape(const std::filesystem::path& file, const FileScope& scope) {
  POPRUN_ASSIGN(const auto bytes, read_bytes(file, scope, kHeaderPrefix));
  return parse_idx_shape(bytes, file.string());
}

Result<IdxArray> read_idx(const std::filesystem::path& file, const FileScope& scope) {
  POPRUN_ASSIGN(const auto bytes, read_bytes(file, scope));
  return parse_idx(bytes, file.string(), scope);
}

}  // namespace poprun::hostio
