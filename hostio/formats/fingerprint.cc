#include "hostio/formats/fingerprint.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "hostio/formats/file_bytes.h"
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

Result<std::string> fingerprint_of(const std::vector<std::filesystem::path>& files,
                                   const FileScope& scope) {
  Sha256 digest;
  for (const std::filesystem::path& path : files) {
    POPRUN_TRY(add_file(digest, path, scope));
  }
  return digest.digest();
}

}  // namespace poprun::hostio
