#include "hostio/formats/fingerprint.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <unistd.h>

#include "hostio/formats/open_file.h"
#include "replica/base/sha256.h"

namespace poprun::hostio {
namespace {

constexpr std::uint64_t kPieceBytes = 1 << 20;
constexpr std::uint64_t kPieces = 256;

void add_file(Sha256& digest, const OpenFile& file) {
  const std::uint64_t size = file.size();
  digest.add({reinterpret_cast<const char*>(&size), sizeof size});
  const std::uint64_t last = size - std::min(size, kPieceBytes);
  std::vector<char> piece(kPieceBytes);
  for (std::uint64_t k = 0; k < kPieces; ++k) {
    const std::uint64_t at =
        size <= kPieces * kPieceBytes ? k * kPieceBytes : last * k / (kPieces - 1);
    const ssize_t got =
        at < size ? ::pread(file.descriptor(), piece.data(), piece.size(), static_cast<off_t>(at))
                  : 0;
    digest.add({piece.data(), got > 0 ? static_cast<std::size_t>(got) : 0});
  }
}

}  // namespace

std::string fingerprint_of(const std::set<std::filesystem::path>& files) {
  Sha256 digest;
  for (const std::filesystem::path& path : files) {
    if (const Result<OpenFile> file = OpenFile::open(path)) {
      add_file(digest, *file);
    }
  }
  return digest.digest();
}

}  // namespace poprun::hostio
