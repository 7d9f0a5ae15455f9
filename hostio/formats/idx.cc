#include "hostio/formats/idx.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <isa-l/igzip_lib.h>

#include "replica/base/text.h"

namespace poprun::hostio {
namespace {

constexpr std::size_t kHeaderPrefix = std::size_t{64} << 10;

/// Reads the bytes of a file, or of its beginning, in order. Gzip data, with any number of members, is inflated; other
/// data is unchanged. Any input yields bytes or an error. Memory use depends on the actual bytes, not on claimed sizes.
/// Errors of all member functions: kData if the gzip data is damaged or truncated, or the inflated bytes do not fit
/// in this host's memory; the message calls the data `name`.
class Content {
 public:
  /// `bytes` must outlive the content. `scope` records the progress and limits the memory.
  Content(std::span<const std::byte> bytes, std::string_view name, FileScope scope = {})
      : rest_(bytes), name_(name), scope_(std::move(scope)), inflating_(is_gzip(bytes)) {
    if (inflating_) {
      begin_member();
    }
  }

  /// Reads bytes into `out` until it is full or the data ends. Returns the number of bytes read.
  Result<std::size_t> read(std::span<std::byte> out) {
    if (inflating_) {
      return inflate_into(out);
    }
    const std::size_t count = std::min(out.size(), rest_.size());
    if (count > 0) {
      std::memcpy(out.data(), rest_.data(), count);
    }
    rest_ = rest_.subspan(count);
    return count;
  }

  /// Returns the next `count` bytes, or fewer at the end.
  Result<std::vector<std::uint8_t>> take(std::uint64_t count) {
    // Images are rarely compressed to less than a quarter.
    const std::uint64_t first_growth = std::max<std::uint64_t>(std::uint64_t{1} << 20, 4 * rest_.size());
    std::vector<std::uint8_t> bytes;
    std::size_t filled = 0;
    while (filled < count) {
      const std::uint64_t growth = std::max<std::uint64_t>(first_growth, 2 * filled);
      POPRUN_TRY(scope_.resize(bytes, std::min(count, growth), name_));
      POPRUN_ASSIGN(const std::size_t had, read(std::as_writable_bytes(std::span(bytes)).subspan(filled)));
      filled += had;
      if (filled < bytes.size()) {
        bytes.resize(filled);
        break;
      }
    }
    return bytes;
  }

 private:
  Result<std::size_t> inflate_into(std::span<std::byte> out) {
    constexpr std::size_t kPiece = 16 << 20;  // Progress is recorded after each piece.
    std::size_t done = 0;
    while (done < out.size()) {
      if (ended_) {
        if (rest_.empty()) {
          break;
        }
        if (!is_gzip(rest_)) {
          return damaged("bytes that are not gzip data follow its end");
        }
        begin_member();  // As gunzip allows.
      }
      const std::size_t in = std::min(rest_.size(), kPiece);
      const std::size_t room = std::min(out.size() - done, kPiece);
      // The library does not write to its input, although its pointer is not const.
      inflate_.next_in = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(rest_.data()));
      inflate_.avail_in = static_cast<std::uint32_t>(in);
      inflate_.next_out = reinterpret_cast<std::uint8_t*>(out.data() + done);
      inflate_.avail_out = static_cast<std::uint32_t>(room);
      const int code = isal_inflate(&inflate_);
      const std::size_t made = room - inflate_.avail_out;
      done += made;
      total_ += made;
      scope_.advance(made);
      // At the end of a member, the library may return bytes that it took in an earlier call.
      rest_ = {reinterpret_cast<const std::byte*>(inflate_.next_in), rest_.data() + rest_.size()};
      ended_ = inflate_.block_state == ISAL_BLOCK_FINISH;
      const bool stands_still = made == 0 && inflate_.avail_in == in && !ended_ && in > 0;
      if (code != ISAL_DECOMP_OK || stands_still) {
        return damaged(reason_of(code));
      }
      if (!ended_ && rest_.empty() && done < out.size()) {
        return fail(ErrorCode::kData,
                    fmt::format("{}: the gzip data ends too early, after {} inflated bytes", name_, total_));
      }
    }
    return done;
  }

  static bool is_gzip(std::span<const std::byte> bytes) {
    return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
  }

  void begin_member() {
    isal_inflate_init(&inflate_);
    inflate_.crc_flag = ISAL_GZIP;
    ended_ = false;
  }

  [[nodiscard]] tl::unexpected<Error> damaged(std::string_view reason) const {
    return fail(ErrorCode::kData,
                fmt::format("{}: the gzip data is damaged after {} inflated bytes: {}", name_, total_, reason));
  }

  static std::string_view reason_of(int code) {
    switch (code) {
      case ISAL_INVALID_WRAPPER:
      case ISAL_UNSUPPORTED_METHOD:
        return "the header is not that of gzip with deflate";
      case ISAL_INCORRECT_CHECKSUM:
        return "the checksum does not match";
      default:
        return "a deflate block is not valid";
    }
  }

  std::span<const std::byte> rest_;
  std::string name_;
  FileScope scope_;
  inflate_state inflate_{};
  std::uint64_t total_ = 0;
  bool inflating_;
  bool ended_ = false;  ///< Whether the current member has been inflated and its checksum verified.
};

Result<IdxShape> take_shape(Content& content, std::string_view name) {
  std::array<std::uint8_t, 4> magic{};
  POPRUN_ASSIGN(const std::size_t had, content.read(std::as_writable_bytes(std::span(magic))));
  if (had < magic.size()) {
    return fail(ErrorCode::kData, fmt::format("{}: expected an IDX header of at least 8 bytes, found {}", name, had));
  }
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != 0x08) {
    return fail(ErrorCode::kData,
                fmt::format("{}: expected an IDX file of unsigned bytes (begins 00 00 08), found {:02x} {:02x} {:02x}",
                            name, magic[0], magic[1], magic[2]));
  }
  const std::size_t rank = magic[3];
  if (rank < 1 || rank > kIdxRankMax) {
    return fail(ErrorCode::kData, fmt::format("{}: expected 1 to {} dimensions, found {}", name, kIdxRankMax, rank));
  }
  std::array<std::uint8_t, 4 * kIdxRankMax> words{};
  POPRUN_ASSIGN(const std::size_t words_had, content.read(std::as_writable_bytes(std::span(words)).first(4 * rank)));
  if (words_had < 4 * rank) {
    return fail(ErrorCode::kData, fmt::format("{}: expected an IDX header of {} bytes for {}, found {}", name,
                                              4 + 4 * rank, counted(rank, "dimension"), 4 + words_had));
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
      return fail(ErrorCode::kData, fmt::format("{}: dimensions {} exceed the limit of {} elements", name,
                                                fmt::join(shape.dims, " x "), kIdxElementsMax));
    }
  }
  return shape;
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
  const auto& [dims, elements] = array.shape;
  POPRUN_ASSIGN(array.elements, content.take(elements));
  if (array.elements.size() < elements) {
    return fail(ErrorCode::kData, fmt::format("{}: truncated: expected {} elements ({}), found {}", name, elements,
                                              fmt::join(dims, " x "), array.elements.size()));
  }
  // Reading past the end also verifies the checksum after the last byte.
  POPRUN_ASSIGN(const std::vector<std::uint8_t> trailing, content.take(1));
  if (!trailing.empty()) {
    return fail(ErrorCode::kData, fmt::format("{}: expected {} elements ({}), but more bytes follow them", name,
                                              elements, fmt::join(dims, " x ")));
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
