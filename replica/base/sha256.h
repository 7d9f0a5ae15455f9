#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "replica/base/error.h"

namespace poprun {

/// Computes a SHA-256 digest incrementally.
class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  ~Sha256();

  void add(std::string_view bytes);
  /// Returns 64 hexadecimal digits. Call only once.
  std::string digest();
  /// Returns the 32 bytes of the digest. Call only once, instead of `digest`.
  std::string digest_bytes();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string sha256_of(std::string_view bytes);

/// Returns `bytes` in base64 (RFC 4648, section 4), on one line.
std::string base64(std::string_view bytes);

/// Returns the digest of the file at `path`. Errors: kData if it cannot be read; the message says why.
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace poprun
