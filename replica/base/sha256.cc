#include "replica/base/sha256.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

namespace poprun {

struct Sha256::Context {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  POPRUN_CHECK(context_->context != nullptr && EVP_DigestInit_ex(context_->context, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() {
  EVP_MD_CTX_free(context_->context);
}

void Sha256::add(std::string_view bytes) {
  POPRUN_CHECK(EVP_DigestUpdate(context_->context, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::digest_bytes() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  POPRUN_CHECK(EVP_DigestFinal_ex(context_->context, digest.data(), &size) == 1);
  return {digest.begin(), digest.begin() + size};
}

std::string Sha256::digest() {
  std::string text;
  for (const char byte : digest_bytes()) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

std::string sha256_of(std::string_view bytes) {
  Sha256 sha;
  sha.add(bytes);
  return sha.digest();
}

std::string base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),         // NOLINT: OpenSSL's type.
                                     reinterpret_cast<const unsigned char*>(bytes.data()),  // NOLINT
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

Result<std::string> sha256_of_file(const std::string& path) {
  constexpr std::size_t kPieceBytes = 1 << 20;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::vector<char> piece(kPieceBytes);
  Sha256 sha;
  ssize_t got = file < 0 ? -1 : 1;
  while (got > 0) {
    got = read(file, piece.data(), piece.size());
    sha.add({piece.data(), got > 0 ? static_cast<std::size_t>(got) : 0});
  }
  const int reason = errno;
  if (file >= 0) {
    close(file);
  }
  if (got < 0) {
    return fail(ErrorCode::kData, fmt::format("{}: cannot be read: {}", path, std::strerror(reason)));
  }
  return sha.digest();
}

}  // namespace poprun
