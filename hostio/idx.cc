#include "hostio/idx.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>

#include <fmt/format.h>
#include <zlib.h>

#include "hostio/file_bytes.h"

namespace poprun::hostio {
namespace {

constexpr std::size_t kHeaderPrefix = std::size_t{64} << 10;
constexpr std::size_t kFirstGrowth = std::size_t{1} << 20;

/// The bytes of a file after decompression, in order. Plain bytes pass as they are.
class Content {
 public:
  Content(std::span<const std::byte> file, std::string_view name) : rest_(file), name_(name) {
    const bool gzip = file.size() >= 2 && file[0] == std::byte{0x1F} && file[1] == std::byte{0x8B};
    // 15 bits of window, plus 16: gzip framing with its checksum.
    inflating_ = gzip && inflateInit2(&zlib_, 15 + 16) == Z_OK;
    POPRUN_CHECK(inflating_ == gzip);
  }
  Content(const Content&) = delete;
  Content& operator=(const Content&) = delete;
  ~Content() {
    if (inflating_) {
      inflateEnd(&zlib_);
    }
  }

  /// Fills `out` as far as there are bytes; returns how many.
  Result<std::size_t> read(std::span<std::uint8_t> out) {
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

 private:
  Result<std::size_t> inflate_into(std::span<std::uint8_t> out) {
    constexpr std::size_t kPiece = std::numeric_limits<uInt>::max() / 2;  // zlib counts in 32 bits.
    std::size_t done = 0;
    while (done < out.size()) {
      if (ended_) {
        if (rest_.empty()) {
          break;
        }
        inflateReset(&zlib_);  // Another gzip member follows, as gunzip allows.
        ended_ = false;
      }
      const std::size_t in = std::min(rest_.size(), kPiece);
      const std::size_t room = std::min(out.size() - done, kPiece);
      // zlib does not write to its input; its pointer lacks the const.
      zlib_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest_.data()));
      zlib_.avail_in = static_cast<uInt>(in);
      zlib_.next_out = out.data() + done;
      zlib_.avail_out = static_cast<uInt>(room);
      const int code = inflate(&zlib_, Z_NO_FLUSH);
      const std::size_t made = room - zlib_.avail_out;
      done += made;
      total_ += made;
      rest_ = rest_.subspan(in - zlib_.avail_in);
      ended_ = code == Z_STREAM_END;
      if (code == Z_BUF_ERROR || (code == Z_OK && rest_.empty() && done < out.size())) {
        return fail(ErrorCode::kData,
                    fmt::format("{}: the gzip data ends too early, after {} inflated bytes", name_,
                                total_));
      }
      if (code != Z_OK && code != Z_STREAM_END) {
        return fail(ErrorCode::kData,
                    fmt::format("{}: the gzip data is damaged after {} inflated bytes: {}", name_,
                                total_, zlib_.msg != nullptr ? zlib_.msg : zError(code)));
      }
    }
    return done;
  }

  std::span<const std::byte> rest_;
  std::string name_;
  z_stream zlib_{};
  std::uint64_t total_ = 0;
  bool inflating_ = false;
  bool ended_ = false;
};

Result<IdxShape> take_shape(Content& content, std::string_view name) {
  std::array<std::uint8_t, 4> magic{};
  POPRUN_ASSIGN(const std::size_t had, content.read(magic));
  if (had < magic.size()) {
    return fail(ErrorCode::kData,
                fmt::format("{}: needed an IDX header of at least 8 bytes, had {}", name, had));
  }
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != 0x08) {
    return fail(
        ErrorCode::kData,
        fmt::format("{}: needed an IDX file of unsigned bytes (begins 00 00 08), had {:02x} "
                    "{:02x} {:02x}",
                    name, magic[0], magic[1], magic[2]));
  }
  const std::size_t rank = magic[3];
  if (rank < 1 || rank > kIdxRankMax) {
    return fail(ErrorCode::kData,
                fmt::format("{}: needed 1 to {} dimensions, had {}", name, kIdxRankMax, rank));
  }
  std::array<std::uint8_t, 4 * kIdxRankMax> words{};
  POPRUN_ASSIGN(const std::size_t words_had, content.read(std::span(words).first(4 * rank)));
  if (words_had < 4 * rank) {
    return fail(ErrorCode::kData,
                fmt::format("{}: needed an IDX header of {} bytes for {} dimensions, had {}", name,
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
      return fail(ErrorCode::kData,
                  fmt::format("{}: dimensions {} hold more than {} elements, the most that is read",
                              name, fmt::join(shape.dims, " x "), kIdxElementsMax));
    }
  }
  return shape;
}

/// As many elements as the shape says, growing with what is there.
Result<std::vector<std::uint8_t>> take_elements(Content& content, const IdxShape& shape,
                                                std::string_view name) {
  std::vector<std::uint8_t> elements;
  std::size_t filled = 0;
  while (filled < shape.elements) {
    const std::uint64_t growth = std::max<std::uint64_t>(kFirstGrowth, 2 * filled);
    elements.resize(std::min<std::uint64_t>(shape.elements, growth));
    POPRUN_ASSIGN(const std::size_t had, content.read(std::span(elements).subspan(filled)));
    filled += had;
    if (filled < elements.size()) {
      return fail(ErrorCode::kData,
                  fmt::format("{}: truncated: needed {} elements ({}), had {}", name,
                              shape.elements, fmt::join(shape.dims, " x "), filled));
    }
  }
  return elements;
}

}  // namespace

Result<IdxShape> parse_idx_shape(std::span<const std::byte> bytes, std::string_view name) {
  Content content(bytes, name);
  return take_shape(content, name);
}

Result<IdxArray> parse_idx(std::span<const std::byte> bytes, std::string_view name) {
  Content content(bytes, name);
  IdxArray array;
  POPRUN_ASSIGN(array.shape, take_shape(content, name));
  POPRUN_ASSIGN(array.elements, take_elements(content, array.shape, name));
  // Reading past the end also lets zlib check the checksum behind the last byte.
  std::array<std::uint8_t, 1> trailing{};
  POPRUN_ASSIGN(const std::size_t extra, content.read(trailing));
  if (extra != 0) {
    return fail(ErrorCode::kData,
                fmt::format("{}: needed {} elements ({}), had more bytes after them", name,
                            array.shape.elements, fmt::join(array.shape.dims, " x ")));
  }
  return array;
}

Result<IdxShape> read_idx_shape(const std::filesystem::path& file) {
  POPRUN_ASSIGN(const auto bytes, read_bytes(file, kHeaderPrefix));
  return parse_idx_shape(bytes, file.string());
}

Result<IdxArray> read_idx(const std::filesystem::path& file) {
  POPRUN_ASSIGN(const auto bytes, read_bytes(file));
  return parse_idx(bytes, file.string());
}

}  // namespace poprun::hostio
