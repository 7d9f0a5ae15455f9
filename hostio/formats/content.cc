#include "hostio/formats/content.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "hostio/formats/open_file.h"
#include "replica/base/sha256.h"

namespace poprun::hostio {
namespace {

constexpr std::uint64_t kPieceBytes = 4 << 20;

Status add_file(Sha256& digest, const std::filesystem::path& path, const FileScope& scope) {
  POPRUN_ASSIGN(const OpenFile file, OpenFile::open(path, scope));
  const std::uint64_t size = file.size();
  digest.add({reinterpret_cast<const char*>(&size), sizeof size});
  std::vector<std::byte> piece(std::min(size, kPieceBytes));
  for (std::uint64_t at = 0; at < size; at += piece.size()) {
    piece.resize(std::min<std::uint64_t>(piece.size(), size - at));
    POPRUN_TRY(read_at(file, at, piece, path.string()));
    digest.add({reinterpret_cast<const char*>(piece.data()), piece.size()});
    scope.advance(piece.size());
  }
  return {};
}

}  // namespace

Result<std::string> fingerprint_of(const std::vector<std::filesystem::path>& files, const FileScope& scope) {
  Sha256 digest;
  for (const std::filesystem::path& path : files) {
    POPRUN_TRY(add_file(digest, path, scope));
  }
  return digest.digest();
}

Content::Content(std::span<const std::byte> bytes, std::string_view name, FileScope scope)
    : rest_(bytes), name_(name), scope_(std::move(scope)) {
  const bool gzip = bytes.size() >= 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
  if (gzip) {
    // 15 bits of window; adding 16 selects gzip framing with its checksum.
    inflating_ = inflateInit2(&zlib_, 15 + 16) == Z_OK;
    POPRUN_CHECK(inflating_);
  }
}

Content::~Content() {
  if (inflating_) {
    inflateEnd(&zlib_);
  }
}

Result<std::size_t> Content::read(std::span<std::byte> out) {
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

Result<std::size_t> Content::inflate_into(std::span<std::byte> out) {
  constexpr std::size_t kPiece = 16 << 20;  // Progress is recorded after each piece.
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
    zlib_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    zlib_.avail_out = static_cast<uInt>(room);
    const int code = inflate(&zlib_, Z_NO_FLUSH);
    const std::size_t made = room - zlib_.avail_out;
    done += made;
    total_ += made;
    scope_.advance(made);
    rest_ = rest_.subspan(in - zlib_.avail_in);
    ended_ = code == Z_STREAM_END;
    if (code == Z_BUF_ERROR || (code == Z_OK && rest_.empty() && done < out.size())) {
      return fail(ErrorCode::kData,
                  fmt::format("{}: the gzip data ends too early, after {} inflated bytes", name_, total_));
    }
    if (code != Z_OK && code != Z_STREAM_END) {
      return fail(ErrorCode::kData, fmt::format("{}: the gzip data is damaged after {} inflated bytes: {}", name_,
                                                total_, zlib_.msg != nullptr ? zlib_.msg : zError(code)));
    }
  }
  return done;
}

}  // namespace poprun::hostio
