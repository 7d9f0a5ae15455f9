#include "hostio/formats/fingerprint.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include "hostio/formats/open_file.h"

namespace poprun::hostio {
namespace {

constexpr std::uint64_t kPieceBytes = 64 << 10;
constexpr std::uint64_t kPieces = 64;

void add(EVP_MD_CTX* digest, const void* bytes, std::size_t count) {
  POPRUN_CHECK(EVP_DigestUpdate(digest, bytes, count) == 1);
}

void add_file(EVP_MD_CTX* digest, const OpenFile& file) {
  const std::uint64_t size = file.size();
  add(digest, &size, sizeof size);
  const std::uint64_t last = size - std::min(size, kPieceBytes);
  std::vector<char> piece(kPieceBytes);
  for (std::uint64_t k = 0; k < kPieces; ++k) {
    const std::uint64_t at =
        size <= kPieces * kPieceBytes ? k * kPieceBytes : last * k / (kPieces - 1);
    const ssize_t got =
        at < size ? ::pread(file.descriptor(), piece.data(), piece.size(), static_cast<off_t>(at))
                  : 0;
    add(digest, piece.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  }
}

}  // namespace

std::string fingerprint_of(const std::set<std::filesystem::path>& files) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> digest(EVP_MD_CTX_new(),
                                                                       &EVP_MD_CTX_free);
  POPRUN_CHECK(digest != nullptr && EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr) == 1);
  for (const std::filesystem::path& path : files) {
    if (const Result<OpenFile> file = OpenFile::open(path)) {
      add_file(digest.get(), *file);
    }
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned count = 0;
  POPRUN_CHECK(EVP_DigestFinal_ex(digest.get(), bytes.data(), &count) == 1);
  std::string text;
  for (unsigned i = 0; i < count; ++i) {
    text += fmt::format("{:02x}", static_cast<unsigned>(bytes.at(i)));
  }
  return text;
}

}  // namespace poprun::hostio
